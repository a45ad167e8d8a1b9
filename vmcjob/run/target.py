"""When an evaluation has the error that was asked for: where this is looked at, and what is found.

To look after every step, and stop at the first small error, would favour errors that are small by
chance: so it is done rarely, and one look has to confirm another.
"""

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
    """What was found of an evaluation of so many steps; errors in hartree."""

    target: float
    step: int
    error: float  # as `aggregate` quotes it
    is_reached: bool

    def to_json(self) -> dict[str, Any]:
        """For the store's attributes."""
        return self._asdict() | {"error": self.error if np.isfinite(self.error) else None}

    def __str__(self) -> str:
        """How the evaluation ended, for people."""
        how = "reached" if self.is_reached else "not reached within evaluate.steps"
        about = f"the error is {self.error:.2g} hartree after {self.step} steps"
        return f"target_error {self.target:g} {how}: {about}"


def looks_of(options: Evaluate) -> frozenset[int]:
    """The steps of an evaluation after which its error is looked at; none without a target."""
    return frozenset(looks(options.steps) if options.target_error is not None else [])


def looks(ceiling: int) -> list[int]:
    """The lengths at which an evaluation of at most `ceiling` steps may end; itself the last.

    All others are the same for every ceiling.
    """
    return [*lengths(ceiling)[1:], ceiling]


def judge(energy: np.ndarray, variance: np.ndarray, target: float) -> Finding:
    """Whether the mean of all steps so far is known as well as asked for, to `target` hartree.

    It is so if it was at the length before, too, and if both were converged (`stats.estimate`): the
    error bar of a series that drifts, or has too few independent samples, means nothing.
    """
    found = estimate(energy, variance=variance)
    parts = [found]
    parts += [estimate(energy[:n], variance=variance[:n]) for n in lengths(found.n)[-1:]]
    return Finding(target, found.n, found.error, all(_is_small(part, target) for part in parts))


def forecast(options: Evaluate, step: int, error: float | None) -> int | None:
    """After how many steps an evaluation will probably end; its ceiling if its target is too far.

    None without a target, and before anything is known. The error, in hartree after so many steps,
    falls as one over their root; that of two lengths has to be small.
    """
    if options.target_error is None or error is None or step < FIRST_LENGTH:
        return None
    needed = step * (error / options.target_error) ** 2
    ends = pairwise([*lengths(options.steps), options.steps])
    return next((end for before, end in ends if before >= needed and end > step), options.steps)


def lengths(end: int) -> list[int]:
    """Those below `end` at which a series is looked at."""
    found: list[int] = []
    while (n := round(FIRST_LENGTH * 2.0 ** (len(found) / LOOKS_PER_DOUBLING))) < end:
        found.append(n)
    return found


def _is_small(found: Estimate, target: float) -> bool:
    is_known = found.converged and found.n_eff >= MIN_INDEPENDENT
    return bool(is_known and found.error <= target)
