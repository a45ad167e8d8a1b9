"""A molecule as data: the nuclei and electrons of `[system]`."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from itertools import product
from typing import Annotated, Any, Final, Literal

from vmcjob.document import (
    FAILED,
    Before,
    Clash,
    Failure,
    KeyPath,
    Kind,
    Reader,
    Rule,
    Schema,
    at_least,
    at_most_of_them,
    between,
    enumerate_words,
    one_of,
)
from vmcjob.resources import ONE_LINE
from vmcjob.spec.ecp import Ecp
from vmcjob.spec.elements import ISOTOPES, NUCLEAR_CHARGES, SYMBOLS
from vmcjob.spec.potential import Potential

BOHR_PER_ANGSTROM = 1 / 0.529177210544  # CODATA 2022
NEAREST_NUCLEI_BOHR = 1e-3
"""Closer nuclei are a mistake: two protons would repel each other with 1000 hartree."""
FAR_BOHR: Final = 6.0
"""Distance of atoms beyond which hardly any move takes an electron from one to the other."""
POINTS: Final = (4, 6, 12, 18, 26, 32, 50)
"""Numbers of points of the quadratures on the sphere."""
MAX_ATOMS: Final = 1000
"""Largest molecule: ten times the largest that was computed with this method."""
FARTHEST_BOHR = 1e4
"""At larger coordinates, neighbouring float32 numbers differ by more than 0.001 bohr."""
LOWEST_SPIN: Final = -1
"""Means 0 or 1 unpaired electrons, depending on the number of electrons."""


@dataclass(frozen=True)
class Atom:
    """A nucleus; in TOML the array ``["H", x, y, z]``."""

    symbol: str
    position: tuple[float, float, float]  # bohr

    @classmethod  # `Any`, because a user may have written anything
    def from_toml(cls, value: Any, path: KeyPath, reader: Reader) -> "Atom | Failure":
        """Read an atom in the unit of its document; `System` converts it to bohr."""
        if not isinstance(value, list) or len(value) != 4:
            return reader.refuse(path, f"an atom like {_EXAMPLE}", value)
        symbol = _read_symbol(value[0], (*path, 0), reader)
        x, y, z = (reader.value(COORDINATE, value[i], (*path, i)) for i in (1, 2, 3))
        return FAILED if FAILED in (symbol, x, y, z) else cls(symbol, (x, y, z))

    @staticmethod
    def json_schema() -> Schema:
        """A symbol and three coordinates, each a number or an expression."""
        expression = {"type": "string", "pattern": r"^\s*\{.*\}\s*$"}
        coordinate = {"anyOf": [{"type": "number"}, expression]}
        symbol = {"type": "string", "enum": list(SYMBOLS)}
        sizes = {"minItems": 4, "maxItems": 4}
        return {"type": "array", "items": [symbol, *[coordinate] * 3]} | sizes

    def to_toml(self) -> list[str | float]:
        return [self.symbol, *self.position]


def _read_symbol(value: Any, path: KeyPath, reader: Reader) -> Any:
    """The symbol of an element; for an isotope of hydrogen, the complaint says so."""
    if isinstance(value, str) and _GHOST.fullmatch(value):
        words = (
            f'"{value}" is a ghost atom, basis functions without a nucleus; there are none here: '
            "leave it out"
        )
        return reader.complain(path, words)
    isotope = ISOTOPES.get(value) if isinstance(value, str) else None
    if isotope is None:
        return reader.value(_ELEMENT, value, path)
    words = f'{isotope} is an isotope of hydrogen, and no mass counts here; write "H"'
    return reader.complain(path, words)


_AROUND = tuple(product((-1, 0, 1), repeat=3))
_GHOST = re.compile(r"@\w+|(X|Xx|Q|Bq|Gh|gh|ghost|Ghost|GHOST)([-:_(\d].*)?")
"""How other programs write atoms that have basis functions and no nucleus."""
_EXAMPLE = '["H", 0.0, 0.0, 1.4]'
_ELEMENT = Kind(str, (one_of(SYMBOLS, "the symbol of an element"),))
COORDINATE = Kind(float, (Rule('{} or an expression like "{R/2}"', math.isfinite),))
"""A coordinate of an atom; a swept spec may give an expression instead."""


@dataclass(frozen=True)
class System:
    """Nuclei and electrons; positions are converted to bohr."""

    atoms: Annotated[
        tuple[Atom, ...],
        Rule(
            f"{{}} of atoms, each like {_EXAMPLE}",
            lambda atoms: any(isinstance(atom, list) for atom in atoms),
            schema=(("minItems", 1),),
        ),
        at_most_of_them(MAX_ATOMS),
        f"the nuclei, like atoms = [{_EXAMPLE}]",
    ]
    unit: InitVar[
        Annotated[
            Literal["bohr", "angstrom"], "of the positions of the atoms; of an xyz file: angstrom"
        ]
    ] = "bohr"
    charge: Annotated[int, between(-1000, 1000), "of the whole molecule, in units of e"] = 0
    spin: Annotated[int, at_least(0), "number of unpaired electrons, 2S; 0 or 1"] = LOWEST_SPIN
    reference: Annotated[float | None, "an energy to compare with, in hartree"] = None
    xyz: InitVar[Annotated[str | None, ONE_LINE, "an xyz file with the atoms, beside the spec"]] = (
        None
    )
    molecule: InitVar[
        Annotated[str | None, ONE_LINE, 'a molecule of ase\'s table, like "H2O", instead of atoms']
    ] = None
    ecp: Annotated[
        Ecp | None,
        'effective core potentials: "ccecp" or another set of pyscf for all elements but H and He, '
        'or a table by element, like { Fe = "ccecp", Li = "none", S = "./s.nwchem" }',
        Before(None),
    ] = None
    ecp_points: Annotated[
        int | None,
        Rule(
            f"one of {enumerate_words([str(n) for n in POINTS], 'or')}",
            lambda n: n in POINTS,
        ),
        "of the quadrature of a potential's non-local part; 6 for s, 12 for p and d",
        Before(None),
    ] = None

    def __post_init__(self, unit: str, xyz: str | None, molecule: str | None) -> None:
        """Convert positions to bohr, find the potentials, and set the lowest spin."""
        if unit == "angstrom":
            object.__setattr__(self, "atoms", tuple(_in_bohr(atom) for atom in self.atoms))
        if self.ecp is not None:
            object.__setattr__(self, "ecp", self.ecp.resolved(self.symbols))
        if self.ecp is not None and self.ecp_points is None:
            object.__setattr__(self, "ecp_points", self.ecp.n_points)
        if self.spin == LOWEST_SPIN:
            object.__setattr__(self, "spin", self.n_electrons % 2)

    @staticmethod  # `Any`, because a user may have written anything
    def translate(name: str, value: Any) -> str | None:
        """What to tell somebody who gave the multiplicity; None for any other key."""
        if name not in ("multiplicity", "mult"):
            return None
        is_known = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        example = f"spin = {value - 1}" if is_known else "spin = 2 for a triplet"
        return f"unknown key; write the number of unpaired electrons, 2S: {example}"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The elements of the atoms."""
        return tuple(atom.symbol for atom in self.atoms)

    @property
    def elements(self) -> tuple[int, ...]:
        """The numbers of the elements in the periodic table."""
        return tuple(NUCLEAR_CHARGES[symbol] for symbol in self.symbols)

    @property
    def charges(self) -> tuple[int, ...]:
        """Charges of the nuclei without the charge of their cores, in units of e."""
        return tuple(
            NUCLEAR_CHARGES[atom.symbol] - (core.electrons if core else 0)
            for atom, core in zip(self.atoms, self.cores, strict=True)
        )

    @property
    def cores(self) -> tuple[Potential | None, ...]:
        """The potential that stands for the core of each atom; None for a bare nucleus."""
        known = dict(self.ecp.potentials) if self.ecp else {}
        return tuple(known.get(symbol) for symbol in self.symbols)

    @property
    def has_cores(self) -> bool:
        """Whether a potential stands for the core of any atom."""
        return any(core is not None for core in self.cores)

    @property
    def needs(self) -> tuple[tuple[int, bool], ...]:
        """For each atom, the number of its element, and whether its core has a potential."""
        cores = (core is not None for core in self.cores)
        return tuple(zip(self.elements, cores, strict=True))

    @property
    def n_electrons(self) -> int:
        return sum(self.charges) - self.charge

    @property
    def n_up(self) -> int:
        return (self.n_electrons + self.spin) // 2

    @property
    def n_down(self) -> int:
        return self.n_electrons - self.n_up

    @property
    def is_far_apart(self) -> bool:
        """Whether some atoms are farther than FAR_BOHR from all others."""
        first, *others = (atom.position for atom in self.atoms)
        reached, left = [first], set(others)
        while reached:
            here = reached.pop()
            near = {position for position in left if math.dist(here, position) <= FAR_BOHR}
            reached += near
            left -= near
        return bool(left)

    def clashes(self) -> Iterator[Clash]:
        """Nuclei too far away or too close to each other, and impossible numbers of electrons."""
        for i, atom in enumerate(self.atoms):
            if not max(map(abs, atom.position)) <= FARTHEST_BOHR:
                message = f"this {atom.symbol} is more than {FARTHEST_BOHR:g} bohr from the origin"
                yield Clash(("atoms", "unit"), message, (i,))
        for i, j in _too_near(self.atoms):
            first, second = self.atoms[i], self.atoms[j]
            distance = math.dist(first.position, second.position)
            message = (
                f"this {second.symbol} is {distance:.3g} bohr from the {first.symbol} of "
                f"system.atoms[{i}]; nuclei are at least {NEAREST_NUCLEI_BOHR} bohr apart"
            )
            yield Clash(("atoms", "unit"), message, (j,))
        if ecp_clash := self._ecp_clash():
            yield ecp_clash
        else:
            yield from self._electron_clashes()

    def _ecp_clash(self) -> Clash | None:
        """Potentials for elements that are not there, that have none, or that have no electrons."""
        if self.ecp is None:
            if self.ecp_points is None:
                return None
            message = "no element has a potential, so there is no quadrature; leave it out"
            return Clash(("ecp_points", "ecp"), message)
        found = self.ecp.misfit(self.symbols)
        return found and Clash(("ecp", "atoms"), *found)

    def _electron_clashes(self) -> Iterator[Clash]:
        n_electrons = self.n_electrons
        if n_electrons < 1:
            message = (
                f"a charge of {self.charge} leaves no electrons; "
                f"neutral, there would be {sum(self.charges)}"
            )
            yield Clash(("charge", "atoms"), message)
            return
        if self.spin > n_electrons:
            wanted = f"at most {n_electrons}"
        elif (n_electrons - self.spin) % 2:
            wanted = "an odd number" if n_electrons % 2 else "an even number"
        else:
            return
        electrons = "1 electron" if n_electrons == 1 else f"{n_electrons} electrons"
        message = f"{self.spin} unpaired among {electrons} is impossible; expected {wanted}"
        yield Clash(("spin", "charge", "atoms"), message)


def _too_near(atoms: Sequence[Atom]) -> Iterator[tuple[int, int]]:
    """Pairs (i, j) of atoms that are too close, in linear time.

    Atoms out of range are skipped. Space is divided into cubes: atoms that are too close are in the
    same cube or in neighbouring cubes.
    """
    cubes: dict[tuple[int, int, int], list[int]] = {}
    for j, atom in enumerate(atoms):
        if not max(map(abs, atom.position)) <= FARTHEST_BOHR:
            continue
        x, y, z = (math.floor(coordinate / NEAREST_NUCLEI_BOHR) for coordinate in atom.position)
        near = [i for dx, dy, dz in _AROUND for i in cubes.get((x + dx, y + dy, z + dz), ())]
        distances = {i: math.dist(atoms[i].position, atom.position) for i in near}
        close = [i for i, distance in distances.items() if distance < NEAREST_NUCLEI_BOHR]
        if close:
            yield min(close), j
        else:
            cubes.setdefault((x, y, z), []).append(j)


def _in_bohr(atom: Atom) -> Atom:
    x, y, z = (BOHR_PER_ANGSTROM * coordinate for coordinate in atom.position)
    return replace(atom, position=(x, y, z))
