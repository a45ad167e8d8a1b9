"""`system.ecp`: which elements have an effective core potential, and from where."""

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from vmcjob.document import (
    FAILED,
    Complaint,
    Document,
    Failure,
    KeyPath,
    Reader,
    Schema,
    enumerate_words,
    format_value,
)
from vmcjob.errors import SpecError
from vmcjob.spec.elements import NUCLEAR_CHARGES
from vmcjob.spec.potential import ANGULAR, Misread, Potential, read_potential

BARE: Final = "none"
LIGHT: Final = ("H", "He")
"""Elements without core electrons; they stay bare unless a table names them."""
POINTS_BY_L: Final = (6, 12, 12, 26, 32, 50)
"""Points of the quadrature by the highest l of a channel: exact to degree 2l + 1 at least."""
_EXAMPLE: Final = '"ccecp", or a table like { Fe = "ccecp" }'


@dataclass(frozen=True)
class Ecp:
    """The potentials by element.

    In a job spec that is resolved, all potentials are in NWChem's format, so a run depends on no
    file and no release of pyscf.
    """

    potentials: tuple[tuple[str, Potential], ...] = ()
    every: str = ""
    """A set for all elements but H and He; empty once the potentials are found."""

    @classmethod  # `Any`, because a user may have written anything
    def from_toml(cls, value: Any, path: KeyPath, reader: Reader) -> "Ecp | Failure":
        """Read the name of a set, or a table of names, files or potentials."""
        if isinstance(value, str):
            return cls.of_set(value, path, reader)
        if not isinstance(value, dict):
            return reader.refuse(path, _EXAMPLE, value)
        found = {
            symbol: _read_one(symbol, one, (*path, symbol), reader) for symbol, one in value.items()
        }
        if FAILED in found.values():
            return FAILED
        return cls(tuple(sorted((s, p) for s, p in found.items() if isinstance(p, Potential))))

    @staticmethod
    def json_schema() -> Schema:
        """The name of a set, or a table of names, files or potentials by element."""
        one = {"type": "string", "minLength": 1}
        table = {"type": "object", "propertyNames": {"enum": list(NUCLEAR_CHARGES)}}
        return {"anyOf": [one, table | {"additionalProperties": one}]}

    @classmethod
    def of_set(cls, name: str, path: KeyPath, reader: Reader) -> "Ecp | Failure":
        """A set for all elements that have core electrons."""
        if name == BARE:
            return cls()
        try:
            is_known = _is_known(name)
        except ImportError:
            return reader.complain(path, _no_pyscf(name))
        return cls(every=name) if is_known else reader.complain(path, _about_unknown(name))

    def to_toml(self) -> dict[str, str]:
        """The table with the potentials themselves."""
        return {symbol: potential.text(symbol) for symbol, potential in self.potentials}

    def resolved(self, symbols: tuple[str, ...]) -> "Ecp | None":
        """The potentials of the elements of a system; None if there are none.

        `every` stays if the set has no potential for an element, and `missing` names the element.
        """
        if not self.every:
            return self if self.potentials else None
        wanted = sorted({symbol for symbol in symbols if symbol not in LIGHT})
        found = {symbol: load_potential(self.every, symbol) for symbol in wanted}
        good = tuple((symbol, one) for symbol, one in found.items() if one)
        is_whole = len(good) == len(wanted)
        return Ecp(good, "" if is_whole else self.every) if wanted else None

    def missing(self, symbols: tuple[str, ...]) -> list[str]:
        """The elements for which the set has no potential."""
        known = {symbol for symbol, _ in self.potentials} | set(LIGHT)
        return sorted(set(symbols) - known) if self.every else []

    def misfit(self, symbols: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
        """A complaint about potentials that do not fit the elements, and its place in the table."""
        for symbol, potential in self.potentials:
            if symbol not in symbols:
                return f"there is no atom of {symbol}; leave it out", (symbol,)
            if potential.electrons >= NUCLEAR_CHARGES[symbol]:
                message = (
                    f"the core has {potential.electrons} electrons, which are all that "
                    f"{symbol} has; choose a potential with a smaller core"
                )
                return message, (symbol,)
        if missing := self.missing(symbols):
            elements = enumerate_words(missing, "and")
            named = f'{{ {missing[0]} = "none" }}'
            message = (
                f"{self.every} has no potential for {elements}; use another set, or a table "
                f"with a file or none for each element, like {named}"
            )
            return message, ()
        return None

    @property
    def n_points(self) -> int:
        """The number of points of the quadrature, unless the spec gives one."""
        return POINTS_BY_L[max([0, *(potential.l_most for _, potential in self.potentials)])]


def _read_one(symbol: str, value: Any, path: KeyPath, reader: Reader) -> Potential | Failure | None:
    """The potential of one element: a set's, a file's, or its own text; None for a bare nucleus."""
    if symbol not in NUCLEAR_CHARGES:
        return reader.complain(path, f"{symbol} is no element; expected a symbol like Fe")
    if not isinstance(value, str) or not value:
        return reader.refuse(path, 'the name of a set, like "ccecp", a file, or "none"', value)
    if value == BARE:
        return None
    if "\n" in value:
        return _read_text(value, symbol, f"the text of {symbol}", path, reader)
    if "/" in value or "." in value:
        return _read_file(value, symbol, path, reader)
    try:
        if not _is_known(value):
            return reader.complain(path, _about_unknown(value))
        found = load_potential(value, symbol)
    except ImportError:
        return reader.complain(path, _no_pyscf(value))
    words = f"{value} has no potential for {symbol}; use another set, a file, or none"
    return found or reader.complain(path, words)


def _read_file(name: str, symbol: str, path: KeyPath, reader: Reader) -> Potential | Failure:
    """Read the potential of an element from a file, whose name is relative to the spec's folder."""
    place = Path(reader.document.source).parent / name
    try:
        text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "is not UTF-8"
        return reader.complain(path, f"{place}: cannot be read: {reason.lower()}")
    return _read_text(text, symbol, str(place), path, reader)


def _read_text(
    text: str, symbol: str, source: str, path: KeyPath, reader: Reader
) -> Potential | Failure:
    try:
        found = read_potential(text, symbol)
    except Misread as mistake:
        # The caret is in another text than the spec's, so this complaint stands alone.
        complaint = Complaint(mistake.offset, str(mistake))
        raise SpecError([Document(source, text, {}).render(complaint)]) from None
    if found is None:
        return reader.complain(path, f"{source} has no potential for {symbol}")
    return found


@cache
def load_potential(name: str, symbol: str) -> Potential | None:
    """The potential of an element in a set of pyscf; None if the set has none."""
    from pyscf.gto import basis

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on where else to look for a potential
            found = basis.load_ecp(name, symbol)
    except (KeyError, RuntimeError, ValueError, OSError):
        return None
    if not found:
        return None
    electrons, channels = found
    radials = {momentum: _radial(by_power) for momentum, by_power in channels}
    highest = max((momentum for momentum, radial in radials.items() if radial), default=-1)
    if highest + 2 > len(ANGULAR):
        return None
    every = range(-1, highest + 1)
    return Potential(int(electrons), tuple(radials.get(momentum, ()) for momentum in every))


def _radial(by_power: Any) -> tuple[tuple[int, float, float], ...]:
    """Terms of pyscf; a third number, of spin and orbit, is left out, as in pyscf's energies."""
    return tuple((n, float(t[0]), float(t[1])) for n, terms in enumerate(by_power) for t in terms)


@cache
def _is_known(name: str) -> bool:
    """Whether some element has a potential in a set of this name."""
    return any(load_potential(name, symbol) for symbol in ("Si", "Br", "Xe", "Au", "Fe", "U"))


def _about_unknown(name: str) -> str:
    return (
        f'{format_value(name)} is no set of potentials; use "ccecp", "bfd", "lanl2dz" or another '
        'set of pyscf, a file like "./fe.nwchem" for an element, or "none"'
    )


def _no_pyscf(name: str) -> str:
    return f"{name} is read from pyscf, which is not installed here; install pyscf, or give a file"
