"""Doubts about a system that can be computed but is hardly meant: its spin, charge, distances."""

from collections.abc import Iterable, Iterator
from typing import Final

from vmcjob.spec.elements import COVALENT_RADII_ANGSTROM, UNPAIRED
from vmcjob.spec.formula import Pair, formula, multiplet, nearest_pair
from vmcjob.spec.system import BOHR_PER_ANGSTROM, System

SHORTEST_BOND: Final = 2 / 3
"""Of the sum of two covalent radii: real bonds are longer (the triple bond of N₂ has 0.77)."""
MAX_ISOELECTRONIC: Final = 18
"""Electrons: up to argon, an ion has the spin of the neutral atom with as many electrons."""
TRIPLETS: Final = frozenset(
    {
        *("Al2", "AsH", "B2", "BN", "BrN", "CH2", "CSi", "ClN", "FN", "FP"),
        *("Ge2", "HN", "HP", "O2", "OS", "OSe", "S2", "Se2", "Si2", "Te2"),
    }
)
"""Small molecules, by formula, with an even number of electrons and a triplet ground state."""
NO_ANION: Final = frozenset(
    ("He", "Be", "N", "Ne", "Mg", "Ar", "Mn", "Zn", "Kr", "Cd", "Xe", "Hg", "Rn")
)
"""Atoms that bind no further electron."""


def doubts_about(systems: Iterable[System]) -> list[str]:
    """A sentence for each doubt about some systems, each once; of short bonds, the shortest."""
    distinct = list(dict.fromkeys(systems))
    pairs = [pair for system in distinct if (pair := nearest_pair(system))]
    words = [doubt for system in distinct for doubt in _doubts(system)]
    if pairs:
        words += _short_bond(min(pairs, key=lambda pair: pair.distance))
    return list(dict.fromkeys(words))


def _doubts(system: System) -> Iterator[str]:
    ground = _ground_spin(system)
    if ground is not None and system.spin < ground:
        yield (
            f"{formula(system)} is a {multiplet(system.spin)} here, and its ground state is a "
            f"{multiplet(ground)}: spin = {ground}"
        )
    is_unbound = len(system.atoms) == 1 and system.atoms[0].symbol in NO_ANION
    if system.charge < -1 or (system.charge < 0 and is_unbound):
        yield (
            f"{formula(system)} with charge {system.charge} hardly binds all of its electrons; "
            "those that are not bound leave during the run"
        )


def _ground_spin(system: System) -> int | None:
    """Unpaired electrons of the ground state, where it is known."""
    if len(system.atoms) > 1:
        return 2 if system.charge == 0 and formula(system) in TRIPLETS else None
    n_electrons = system.n_electrons + sum(system.elements) - sum(system.charges)
    if system.charge and n_electrons > MAX_ISOELECTRONIC:
        return None
    return UNPAIRED[n_electrons - 1] if n_electrons <= len(UNPAIRED) else None


def _short_bond(pair: Pair) -> Iterator[str]:
    radii = [COVALENT_RADII_ANGSTROM.get(atom.symbol) for atom in (pair.first, pair.second)]
    known = [radius for radius in radii if radius is not None]
    bond = sum(known) * BOHR_PER_ANGSTROM
    if len(known) == len(radii) and pair.distance < SHORTEST_BOND * bond:
        yield (
            f"{pair.bond} at {pair.distance:.4g} bohr ({pair.distance / BOHR_PER_ANGSTROM:.3g} "
            'angstrom) is shorter than any bond; positions are in bohr unless unit = "angstrom"'
        )
