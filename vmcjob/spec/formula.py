"""The words of chemistry for a system: formula, multiplicity, shortest distance."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Final, NamedTuple

from vmcjob.spec.system import BOHR_PER_ANGSTROM, Atom, System

ELECTRONS: Final = "electrons"
"""The name of the electrons in a composition; no element is called so."""
_MULTIPLETS: Final = (
    *("singlet", "doublet", "triplet", "quartet"),
    *("quintet", "sextet", "septet", "octet"),
)


class Pair(NamedTuple):
    """Two nuclei and the distance between them, in bohr."""

    first: Atom
    second: Atom
    distance: float

    @property
    def bond(self) -> str:
        """The pair by its elements, like O-H."""
        return f"{self.first.symbol}-{self.second.symbol}"


def composition(system: System) -> Mapping[str, int]:
    """How many nuclei of each element a system has, and how many electrons."""
    nuclei = Counter(atom.symbol for atom in system.atoms)
    return dict(sorted(nuclei.items())) | {ELECTRONS: system.n_electrons}


def formula(system: System) -> str:
    """The sum formula in Hill's order: carbon, hydrogen, then the alphabet."""
    nuclei = Counter(atom.symbol for atom in system.atoms)
    first = [symbol for symbol in ("C", "H") if "C" in nuclei and symbol in nuclei]
    symbols = [*first, *sorted(symbol for symbol in nuclei if symbol not in first)]
    return "".join(f"{symbol}{nuclei[symbol] if nuclei[symbol] > 1 else ''}" for symbol in symbols)


def multiplet(spin: int) -> str:
    """The name of the multiplicity 2S + 1 of so many unpaired electrons."""
    return _MULTIPLETS[spin] if spin < len(_MULTIPLETS) else f"multiplet of {spin + 1}"


def nearest_pair(system: System) -> Pair | None:
    """The two nuclei that are nearest to each other; None of an atom."""
    pairs = (
        Pair(a, b, math.dist(a.position, b.position)) for a, b in combinations(system.atoms, 2)
    )
    return min(pairs, key=lambda pair: pair.distance, default=None)


def describe_systems(systems: Iterable[System]) -> list[str]:
    """One line for each formula, charge and spin among some systems, in their order."""
    groups: dict[tuple[str, int, int], list[System]] = {}
    for system in systems:
        groups.setdefault((formula(system), system.charge, system.spin), []).append(system)
    return [_describe(group) for group in groups.values()]


def _describe(systems: list[System]) -> str:
    """Systems that differ in the places of their nuclei alone."""
    first = systems[0]
    up, down = first.n_up, first.n_down
    words = (
        f"{formula(first)}, charge {first.charge:+d}, multiplicity {first.spin + 1} "
        f"({multiplet(first.spin)}), electrons: {up} up, {down} down"
    ).replace("charge +0", "charge 0")
    distances = [pair.distance for system in systems if (pair := nearest_pair(system))]
    if not distances:
        return words
    ends = sorted({min(distances), max(distances)})
    in_bohr = " to ".join(f"{end:.4g}" for end in ends)
    in_angstrom = " to ".join(f"{end / BOHR_PER_ANGSTROM:.4g}" for end in ends)
    return f"{words}, shortest distance {in_bohr} bohr = {in_angstrom} angstrom"
