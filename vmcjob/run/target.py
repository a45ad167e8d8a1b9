"""Evaluations with a target error: when to look, and the finding.

A check after every step, with a stop at the first small error, would favour errors that are small
by chance. So checks are rare, and one check has to confirm another.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from vmcjob.spec import Evaluate
from vmcjob.stats import MIN_INDEPENDENT, Estimate, estimate

LOOKS_PER_DOUBLING = 2
"""Lengths grow by √2: what two looks in a row take longer than the first is less than half."""
FIRST_LENGTH = 480
"""In steps. In shorter series a slow motion of the walkers, if there is one, does not show yet."""


class Finding(NamedTuple):
    """The finding about an evaluation after some steps; errors in hartree."""

    target: float
    step: int
    error: float  # as in `aggregate`
    is_reached: bool

    def to_json(self) -> dict[str, Any]:
        """The finding as attributes of the store."""
        return self._asdict() | {"error": self.error if np.isfinite(self.error) else None}

    def __str__(self) -> str:
        """How the evaluation ended, in words."""
        how = "reached" if self.is_reached else "not reached within evaluate.steps"
        about = f"the error is {self.error:.2g} hartree after {self.step} steps"
        return f"target_error {self.target:g} {how}: {about}"


def looks_of(options: Evaluate) -> frozenset[int]:
    """The steps of an evaluation after which its error is checked; none without a target."""
    return frozenset(looks(options.steps) if options.target_error is not None else [])


def looks(ceiling: int) -> list[int]:
    """The lengths at which an evaluation of at most `ceiling` steps may end; the last is `ceiling`.

    All others are the same for every ceiling.
    """
    return [*lengths(ceiling)[1:], ceiling]


def judge(energy: np.ndarray, variance: np.ndarray, target: float) -> Finding:
    """Whether the error of the mean of all steps so far is at most `target` hartree.

    This must hold at the previous length, too, and both must be converged (`stats.estimate`): the
    error bar of a drifting or too short series means nothing.
    """
    found = estimate(energy, variance=variance)
    parts = [found]
    parts += [estimate(energy[:n], variance=variance[:n]) for n in lengths(found.n)[-1:]]
    return Finding(target, found.n, found.error, all(_is_small(part, target) for part in parts))


def forecast(options: Evaluate, step: int, error: float | None) -> int | None:
    """Expected length of an evaluation; its ceiling if the target is too far.

    None without a target, and as long as nothing is known. The error, in hartree after `step`
    steps, falls as one over the root of the steps; it has to be small at two lengths.
    """
    if options.target_error is None or error is None or step < FIRST_LENGTH:
        return None
    needed = step * (error / options.target_error) ** 2
    ends = _ends(needed, options.steps)
    return next((end for end in ends if end > step), options.steps)


def end_for(needed: float, ceiling: int) -> int | None:
    """Length of an evaluation whose error is small after `needed` steps; None above `ceiling`.

    The error has to be small at two lengths.
    """
    return next(_ends(needed, ceiling), None)


def _ends(needed: float, ceiling: int) -> Iterator[int]:
    """The lengths at which an evaluation may end, if its error is small after `needed` steps.

    A ceiling below all lengths is the only check.
    """
    before = lengths(ceiling) or [ceiling]
    return (end for first, end in pairwise([*before, ceiling]) if first >= needed)


def lengths(end: int) -> list[int]:
    """The lengths below `end` at which a series is checked."""
    found: list[int] = []
    while (n := round(FIRST_LENGTH * 2.0 ** (len(found) / LOOKS_PER_DOUBLING))) < end:
        found.append(n)
    return found


def _is_small(found: Estimate, target: float) -> bool:
    is_known = found.converged and found.n_eff >= MIN_INDEPENDENT
    return bool(is_known and found.error <= target)
