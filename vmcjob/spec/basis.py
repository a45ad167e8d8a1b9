"""Basis sets for Hartree–Fock starts, and the elements that they cover."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from vmcjob.document import enumerate_words

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

_CCECP: Final = (
    *((1, 42), (44, 53), (55, 58), (63, 65)),
    *((73, 75), (77, 79), (82, 83)),
)
_CCECP_DIFFUSE: Final = ((1, 9), (11, 17), (19, 42), *_CCECP[1:])
_BFD: Final = ((31, 38), (49, 56), (81, 85))
WITH_POTENTIAL: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "ccecp-ccpvdz": _CCECP, "ccecp-ccpvtz": _CCECP, "ccecp-ccpvqz": _CCECP,
    "ccecp-aug-ccpvdz": _CCECP_DIFFUSE, "ccecp-aug-ccpvtz": _CCECP_DIFFUSE,
    "bfd-vdz": ((1, 20), *_BFD), "bfd-vtz": ((1, 29), *_BFD),
    "lanl2dz": ((11, 57), (72, 83), (92, 94)),
}  # fmt: skip
"""Basis sets for core potentials, and ranges of the elements that each covers in pyscf."""
ALL_ELECTRON: Final = {
    "ccecp-ccpvdz": "cc-pvdz",
    "ccecp-ccpvtz": "cc-pvtz",
    "ccecp-ccpvqz": "cc-pvqz",
    "ccecp-aug-ccpvdz": "aug-cc-pvdz",
    "ccecp-aug-ccpvtz": "aug-cc-pvtz",
    "bfd-vdz": "cc-pvdz",
    "bfd-vtz": "cc-pvtz",
    "lanl2dz": "6-31g*",
}
"""By basis for potentials, the basis of the elements without one."""

AUTO: Final = "auto"
BASIS_SETS: Final = (AUTO, *COVERED, *WITH_POTENTIAL)

Needs: TypeAlias = Sequence[tuple[int, bool]]
"""The nuclei: number of the element, and whether it has a core potential."""


def by_element(basis: str, nuclei: Needs) -> str | dict[int, str]:
    """The basis set of each element; one name if there is no core potential."""
    if not any(has_potential for _, has_potential in nuclei):
        return basis
    return {
        element: basis if has_potential else ALL_ELECTRON.get(basis, basis)
        for element, has_potential in nuclei
    }


def covers(basis: str, charge: int) -> bool:
    """Whether a basis set has functions for all electrons of an element."""
    return any(first <= charge <= last for first, last in COVERED[basis])


def suits(basis: str, element: int, has_potential: bool) -> bool:
    """Whether a basis set has functions for the electrons of a nucleus, in a system with cores."""
    if basis not in WITH_POTENTIAL:
        return False
    if has_potential:
        return any(first <= element <= last for first, last in WITH_POTENTIAL[basis])
    return covers(ALL_ELECTRON[basis], element)


def why_not(basis: str, nuclei: Needs, symbols: Sequence[str]) -> str | None:
    """The reason why a basis set does not suit the nuclei, with advice; None if it does."""
    has_cores = any(has_potential for _, has_potential in nuclei)
    if has_cores:
        missing = [s for s, one in zip(symbols, nuclei, strict=True) if not suits(basis, *one)]
        others = [b for b in WITH_POTENTIAL if all(suits(b, *one) for one in nuclei)]
    else:
        wrong = basis in WITH_POTENTIAL
        pairs = zip(symbols, nuclei, strict=True)
        missing = [symbol for symbol, (z, _) in pairs if wrong or not covers(basis, z)]
        others = [b for b in COVERED if covers_all(b, tuple(z for z, _ in nuclei))]
    if not missing:
        return None
    advice = "nor has any other basis; pretrain.steps = 0 does without"
    if others:
        advice = f"use {enumerate_words(others, 'or')}"
    elements = enumerate_words(list(dict.fromkeys(missing)), "and")
    if has_cores and basis in COVERED:
        return f"{basis} is a basis for all electrons, and system.ecp takes some away; {advice}"
    if not has_cores and basis in WITH_POTENTIAL:
        return f"{basis} is a basis for core potentials, and {elements} has none; {advice}"
    return f"{basis} has no functions for {elements}; {advice}"


def covers_all(basis: str, charges: tuple[int, ...]) -> bool:
    """Whether a basis set has functions for all of some elements."""
    return all(covers(basis, charge) for charge in charges)


def choose(nuclei: Needs, is_diffuse: bool) -> str:
    """The basis set for "auto": an augmented one if electrons are diffuse."""
    if any(has_potential for _, has_potential in nuclei):
        first = ["ccecp-aug-ccpvdz"] if is_diffuse else []
        suited = (b for b in (*first, *WITH_POTENTIAL) if all(suits(b, *one) for one in nuclei))
        return next(suited, "ccecp-ccpvdz")
    charges = tuple(element for element, _ in nuclei)
    wanted = ["aug-cc-pvdz"] if is_diffuse else []
    for basis in (*wanted, "cc-pvdz", "6-31g*", "sto-3g", "3-21g"):
        if covers_all(basis, charges):
            return basis
    return "cc-pvdz"  # no basis covers these elements, and the complaint says so
