"""The total spin of an evaluated state, from the S² that was measured in its evaluation."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vmcjob.stats import estimate

CERTAIN = 3.0
"""Standard errors beyond which a spin is another one."""
MIN_OFF = 0.03
"""Of S²: a deviation below is not worth a word. Right states were within 0.013, wrong ones
(symmetry-broken H₂, H₄) beyond 0.26."""
MAX_ERROR = 0.1
"""Of S²: with a larger error, two neighbouring spins cannot be told apart."""
MAX_OFF_PURE = 0.15
"""Of S(S + 1) and its successor's distance: what a state may be off and still be called pure."""
NAMES = (
    *("singlet", "doublet", "triplet", "quartet"),
    *("quintet", "sextet", "septet", "octet", "nonet"),
)

Spins = tuple[int, int]
"""Electrons of spin up, and of spin down."""


class Spin(NamedTuple):
    """S² with its standard error, beside the S(S + 1) that was asked for."""

    square: float | None  # None where it was not measured
    error: float | None
    expected: float | None  # None where the electrons of either spin are not known
    finding: str = ""  # why the state is suspect, if it is
    doubt: str = ""  # why the spin is not known well enough, if it is not

    @property
    def is_known(self) -> bool:
        """Whether there is a number at all."""
        return self.square is not None


NOT_MEASURED = "spin not measured"


def judge_spin(measured: np.ndarray | None, spins: Spins | None) -> Spin:
    """The spin of a state, and what is wrong with it.

    Args:
        measured: S² step by step, NaN where it was not measured; None in stores of before.
        spins: electrons of spin up and down, if they are known.
    """
    if spins is None:
        return Spin(None, None, None, doubt=NOT_MEASURED)
    two_s = abs(spins[0] - spins[1])
    expected = _square(two_s)
    if min(spins) == 0:  # one electron, or electrons all of one spin
        return Spin(expected, 0.0, expected)
    rows = np.zeros(0) if measured is None else measured[np.isfinite(measured)]
    if len(rows) < 2:
        return Spin(None, None, expected, doubt=NOT_MEASURED)
    found = estimate(rows)
    return _judge(found.mean, found.error if np.ptp(rows) else 0.0, two_s)


def _judge(square: float, error: float, two_s: int) -> Spin:
    """A measured S² beside the one of so many unpaired electrons."""
    expected = _square(two_s)
    if abs(square - expected) > max(MIN_OFF, CERTAIN * error):
        words = f"its S² is {square:.2f}, {_name(two_s)} has {expected:.4g}"
        return Spin(square, error, expected, f"{words}: it looks like {_like(square, two_s)}")
    doubt = f"its S² is known only within {CERTAIN * error:.2g}" if error > MAX_ERROR else ""
    return Spin(square, error, expected, doubt=doubt)


def pool_spins(spins: Sequence[Spin]) -> Spin:
    """The mean of several runs of one system, judged; no number where one run has none."""
    squares = [one.square for one in spins if one.square is not None]
    errors = [one.error for one in spins if one.error is not None]
    if len(squares) < len(spins) or len(errors) < len(spins):
        return Spin(None, None, spins[0].expected)
    error = math.hypot(*errors) / len(errors)
    square, expected = float(np.mean(squares)), spins[0].expected
    if expected is None:
        return Spin(square, error, None)
    return _judge(square, error, two_s=round(math.sqrt(1.0 + 4.0 * expected)) - 1)


def _square(two_s: int) -> float:
    """S(S + 1) of so many unpaired electrons."""
    return 0.25 * two_s * (two_s + 2)


def _name(two_s: int) -> str:
    """A multiplet with its article."""
    if two_s >= len(NAMES):
        return f"a state of {two_s} unpaired electrons"
    return f"{'an' if NAMES[two_s] == 'octet' else 'a'} {NAMES[two_s]}"


def _like(square: float, least: int) -> str:
    """The spin that S² looks like: a pure one, or a mixture of the two neighbours.

    No state has less than the unpaired electrons of its S_z, `least`.
    """
    upper = least
    while _square(upper) < square:
        upper += 2
    lower = max(least, upper - 2)
    gap = _square(upper) - _square(lower)
    for two_s in (lower, upper):
        if abs(square - _square(two_s)) <= MAX_OFF_PURE * gap and two_s != least:
            return _name(two_s)
    if upper == least:
        return "no state that has a spin"
    return f"a mixture of {_name(lower)} and {_name(upper)}"
