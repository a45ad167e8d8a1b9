"""Basis sets for Hartree–Fock starts, and the elements that they cover."""

from typing import Final

_UP_TO_KRYPTON: Final = ((1, 18), (20, 36))  # potassium is missing
_AUGMENTED: Final = ((1, 18), (21, 36))
_SPLIT: Final = ((1, 20), (31, 36), (53, 53))
_DEF2: Final = ((1, 36),)  # heavier elements use a core potential

COVERED: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "sto-3g": ((1, 53),), "sto-6g": ((1, 36),), "3-21g": ((1, 55),),
    "6-31g": ((1, 30),), "6-31g*": ((1, 36),), "6-31g**": ((1, 30),),
    "6-311g": _SPLIT, "6-311g**": _SPLIT,
    "def2-svp": _DEF2, "def2-tzvp": _DEF2, "def2-qzvp": _DEF2,
    "cc-pvdz": _UP_TO_KRYPTON, "cc-pvtz": _UP_TO_KRYPTON, "cc-pvqz": _UP_TO_KRYPTON,
    "aug-cc-pvdz": _AUGMENTED, "aug-cc-pvtz": _AUGMENTED, "aug-cc-pvqz": _AUGMENTED,
}  # fmt: skip
"""Ranges of nuclear charges that each basis set covers in pyscf."""

AUTO: Final = "auto"
BASIS_SETS: Final = (AUTO, *COVERED)


def covers(basis: str, charge: int) -> bool:
    """Whether a basis set has functions for all electrons of an element."""
    return any(first <= charge <= last for first, last in COVERED[basis])


def covers_all(basis: str, charges: tuple[int, ...]) -> bool:
    """Whether a basis set has functions for all of some elements."""
    return all(covers(basis, charge) for charge in charges)


def choose(charges: tuple[int, ...], is_diffuse: bool) -> str:
    """The basis set for "auto": an augmented one if electrons are diffuse."""
    wanted = ["aug-cc-pvdz"] if is_diffuse else []
    for basis in (*wanted, "cc-pvdz", "6-31g*", "sto-3g", "3-21g"):
        if covers_all(basis, charges):
            return basis
    return "cc-pvdz"  # no basis covers these elements, and the complaint says so
