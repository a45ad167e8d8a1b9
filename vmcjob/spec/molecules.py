"""Geometries of small molecules by name, from the table g2 of ase, which is imported when needed.

The 162 molecules of the G2 set (Curtiss et al., J. Chem. Phys. 106, 1063 (1997)), optimised with
MP2(full)/6-31G(d); positions are in angstrom. ase is an optional dependency.
"""

from typing import NamedTuple

from vmcjob.document import closest

SOURCE = "ase's table g2, optimised with MP2(full)/6-31G(d)"


class MoleculeError(Exception):
    """The reason why a molecule has no geometry, as the end of a sentence that begins with it."""


class Molecule(NamedTuple):
    """Symbols and positions in angstrom, and the unpaired electrons of the ground state."""

    atoms: list[list[str | float]]
    spin: int | None = None  # None: not known


def molecule_of(name: str) -> Molecule:
    """A neutral molecule by name; MoleculeError if it is not in the table."""
    try:
        from ase.collections import g2
    except ImportError:
        words = "geometries by name need ase; pip install 'vmcjob[molecules]', or use xyz or atoms"
        raise MoleculeError(words) from None
    if name not in g2.names:
        letters = name.replace("0", "O")
        near = letters if letters in g2.names else closest(name, g2.names)
        formulas = "names are formulas like H2O; xyz or atoms take any molecule"
        advice = f"did you mean '{near}'?" if near else formulas
        raise MoleculeError(f"no molecule of {SOURCE.partition(',')[0]}; {advice}")
    atoms = g2[name]
    rows = zip(atoms.get_chemical_symbols(), atoms.get_positions().tolist(), strict=True)
    spin = round(float(atoms.get_initial_magnetic_moments().sum()))
    return Molecule([[str(symbol), *map(float, at)] for symbol, at in rows], spin)
