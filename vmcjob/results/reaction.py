"""Reaction energies from rows of the table, such as "2*h - h2", with the error of the sum."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

_SIGN = re.compile(r"\s+([+-])\s+")  # names may contain hyphens, but without spaces around them
# name of a row, with coordinates or keys in brackets
_NAME = r"[A-Za-z0-9][\w.-]*(?:\s+[A-Za-z(]\S*)*"
_TERM = re.compile(rf"(?:(?P<factor>\d+(?:\.\d*)?|\.\d+)\s*\*\s*)?(?P<name>{_NAME})")
EXAMPLE: Final = '"2*h - h2"'
SPACES: Final = "spaces around + and -"
TOLERANCE: Final = 1e-6
"""Of numbers of nuclei, for factors like 0.3333333."""


class ReactionError(ValueError):
    """The mistake in a reaction, in words that follow its text."""


class Measured(NamedTuple):
    """An energy and its standard error, in hartree."""

    energy: float
    error: float


class Reaction(NamedTuple):
    """A sum of energies: the factor of each name, and the text as written."""

    text: str
    factors: Mapping[str, float]

    def energy(self, known: Mapping[str, Measured]) -> Measured:
        """The sum for independent energies; ReactionError for an unknown name."""
        unknown = [name for name in self.factors if name not in known]
        if unknown:
            raise ReactionError(describe_unknown(unknown, known))
        energy = math.fsum(factor * known[name].energy for name, factor in self.factors.items())
        return Measured(energy, math.hypot(*(f * known[n].error for n, f in self.factors.items())))


def describe_unknown(unknown: Sequence[str], known: Iterable[str]) -> str:
    """The sentence about names without an energy."""
    have = ", ".join(sorted(known)) or "none"
    words = f"there is no energy of {', '.join(unknown)}; there are: {have}"
    return f"{words}; a sum has {SPACES}" if any("-" in name for name in unknown) else words


def imbalance(reaction: Reaction, compositions: Mapping[str, Mapping[str, int]]) -> str:
    """What a sum does not conserve: nuclei of each element and electrons; "" where it balances.

    Args:
        reaction: the sum; terms with a plus are on one side, those with a minus on the other.
        compositions: of each name, how many of each kind it has.
    """
    sides: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, factor in reaction.factors.items():
        for kind, number in compositions[name].items():
            sides[kind][factor < 0.0] += abs(factor) * number
    uneven = [
        f"{plus:g} {kind} against {minus:g}"
        for kind, (plus, minus) in sides.items()
        if not math.isclose(plus, minus, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    ]
    return ", ".join(uneven)


def parse(text: str) -> Reaction:
    """Read a sum like "2*h - h2": names of rows, each with an optional factor.

    Raises ReactionError if the text is not such a sum.
    """
    first, *rest = _SIGN.split(f" + {text.strip()}" if text.strip() else "")
    factors: dict[str, float] = defaultdict(float)
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        match = _TERM.fullmatch(term.strip())
        if first or match is None:
            raise ReactionError(
                f"'{term.strip()}' is no name of a row; expected a sum like {EXAMPLE}, "
                f"with {SPACES}"
            )
        factors[match["name"]] += float(match["factor"] or 1) * (1 if sign == "+" else -1)
    if not factors:
        raise ReactionError(f"there is nothing in it; expected a sum like {EXAMPLE}")
    return Reaction(text, dict(factors))
