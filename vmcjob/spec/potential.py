"""Effective core potentials as data, and as text in NWChem's format."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from vmcjob.document import closest

ANGULAR: Final = ("ul", "s", "p", "d", "f", "g", "h")
"""Names of the channels in NWChem's format: the local part, then l = 0 to 5."""
MAX_POWER: Final = 6
MAX_TERMS: Final = 1000
_WORD: Final = re.compile(r"\S+")

Term = tuple[int, float, float]
"""(n, α, c) of c r^(n − 2) exp(−α r²), in hartree and bohr."""


@dataclass(frozen=True)
class Potential:
    """The core of one element: its number of electrons, and the potential in its place."""

    electrons: int
    radials: tuple[tuple[Term, ...], ...]  # the local part, then V_0, V_1, …

    @property
    def l_most(self) -> int:
        """The highest l of a non-local channel; −1 without one."""
        return max((i for i, radial in enumerate(self.radials[1:]) if radial), default=-1)

    def text(self, symbol: str) -> str:
        """The potential in NWChem's format; `read_potential` reads it back exactly."""
        lines = [f"{symbol} nelec {self.electrons}"]
        for name, radial in zip(ANGULAR, self.radials, strict=False):
            lines.append(f"{symbol} {name}")
            lines += [f"{n} {alpha!r} {c!r}" for n, alpha, c in radial]
        return "\n".join(lines) + "\n"


class Misread(Exception):
    """A mistake in the text of a potential, at an offset."""

    def __init__(self, offset: int, words: str) -> None:
        super().__init__(words)
        self.offset = offset


class _Word(NamedTuple):
    text: str
    offset: int


def read_potential(text: str, symbol: str) -> Potential | None:
    """The potential of an element; None if the text has none for it. Raises Misread.

    The text has lines like `C nelec 2`, `C ul`, and below those `2 7.76079 52.13345`. Lines "ECP"
    and "END" and comments from # on are skipped. Other elements are checked, too.
    """
    electrons: dict[str, int] = {}
    channels: dict[str, dict[int, list[Term]]] = {}
    terms: list[Term] | None = None
    for words in _lines(text):
        first = words[0]
        if first.text.lower() in ("ecp", "end"):
            continue
        if not first.text[0].isalpha():
            if terms is None:
                raise Misread(first.offset, 'expected a line like "C nelec 2" or "C ul" first')
            terms.append(_term(words))
            continue
        element = first.text.capitalize()
        if len(words) > 1 and words[1].text.lower() == "nelec":
            electrons[element] = _electrons(words)
            continue
        l = _channel(words)  # noqa: E741
        if l in channels.setdefault(element, {}):
            raise Misread(words[1].offset, f"{element} has two channels {words[1].text}")
        terms = channels[element].setdefault(l, [])
    return _assembled(symbol, electrons, channels)


def _lines(text: str) -> Iterator[list[_Word]]:
    """The words of each line that has any."""
    start = 0
    for line in text.split("\n"):
        content = line.partition("#")[0]
        words = [_Word(m.group(), start + m.start()) for m in _WORD.finditer(content)]
        if words:
            yield words
        start += len(line) + 1


def _term(words: list[_Word]) -> Term:
    if len(words) != 3:
        more = "; terms of spin and orbit are not known here" if len(words) == 4 else ""
        end = words[min(3, len(words) - 1)]
        raise Misread(end.offset, f"expected a power, an exponent and a coefficient{more}")
    power, alpha, c = (_number(word) for word in words)
    if power not in range(MAX_POWER + 1):
        raise Misread(words[0].offset, f"expected a power from 0 to {MAX_POWER}")
    if alpha <= 0.0:
        raise Misread(words[1].offset, "expected an exponent above 0")
    return int(power), alpha, c


def _number(word: _Word) -> float:
    try:
        value = float(re.sub("[dD]", "e", word.text))  # Fortran writes 1.0D+00
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Misread(word.offset, f'expected a number, got "{word.text[:40]}"')
    return value


def _electrons(words: list[_Word]) -> int:
    if len(words) != 3 or not words[2].text.isdecimal() or len(words[2].text) > 3:
        place = words[min(2, len(words) - 1)]
        raise Misread(place.offset, 'expected a number of core electrons, like "C nelec 2"')
    return int(words[2].text)


def _channel(words: list[_Word]) -> int:
    """The place of a channel in `Potential.radials`."""
    name = words[1].text.lower() if len(words) == 2 else ""
    if name in ANGULAR:
        return ANGULAR.index(name)
    place = words[min(1, len(words) - 1)]
    near = closest(name, ("nelec", *ANGULAR)) if name else None
    hint = f"; did you mean '{near}'?" if near else ""
    raise Misread(place.offset, f"expected nelec, ul, s, p, d, f, g or h after the element{hint}")


def _assembled(
    symbol: str, electrons: dict[str, int], channels: dict[str, dict[int, list[Term]]]
) -> Potential | None:
    if symbol not in electrons and symbol not in channels:
        return None
    if symbol not in electrons:
        raise Misread(0, f'{symbol} has channels and no line "{symbol} nelec 2"')
    own = channels.get(symbol, {})
    if not own.get(0):
        raise Misread(0, f'{symbol} has no local part, a line "{symbol} ul" and terms below it')
    if sum(map(len, own.values())) > MAX_TERMS:
        raise Misread(0, f"{symbol} has more than {MAX_TERMS} terms")
    places = range(1 + max(place for place, radial in own.items() if radial))
    return Potential(electrons[symbol], tuple(tuple(own.get(place, ())) for place in places))
