"""Walkers compared with each other by their mean energies over an evaluation.

A series of means over walkers does not tell of a walker that never leaves a place of its own: its
energy is a constant there. Two questions are asked of each walker's own mean:

- Is a walker apart from all others? Means of one population scatter alike. Terms are bounded, so
  that only a walker that stays away for long is far off.
- Do all of them scatter by no more than the error bar allows? With s the standard deviation of N
  means, s/√N is the error of their mean, whatever their correlation in time. Where walkers mix it
  is the error bar of the series; where some are trapped it is larger.
"""

from typing import NamedTuple

import numpy as np

MIN_WALKERS = 16
MIN_STEPS = 50
"""Fewer walkers or steps are not compared."""
APART = 8.0
"""Robust standard deviations of all means beyond which a walker is apart."""
SIGMA_PER_MAD = 1.4826  # of a normal distribution


class Walkers(NamedTuple):
    """The walkers of an evaluation, compared; energies in hartree."""

    n: int
    steps: int  # of the evaluation that were counted
    n_apart: int
    shift: float  # of the mean energy, by the walkers that are apart
    spread: float  # standard deviation of the walkers' means

    @property
    def error(self) -> float:
        """The error of the mean energy, by how walkers differ."""
        return self.spread / self.n**0.5


def compare_walkers(tally: np.ndarray) -> Walkers | None:
    """What a tally of an evaluation tells of its walkers; None where there are too few.

    Args:
        tally: for each walker the steps, the sum of its energies less the mean of all walkers in
            each step, and the same sum of bounded terms, hartree.
    """
    counts, sums, bounded = np.asarray(tally, np.float64).T
    steps = int(counts[0])
    if len(tally) < MIN_WALKERS or steps < MIN_STEPS:
        return None
    means, bounded = sums / counts, bounded / counts
    away = bounded - np.median(bounded)
    limit = APART * SIGMA_PER_MAD * float(np.median(np.abs(away)))
    is_apart = np.abs(away) > limit
    n_apart = int(np.count_nonzero(is_apart))
    others = float(np.mean(means[~is_apart])) if n_apart < len(means) else 0.0
    shift = float(np.sum(means[is_apart] - others)) / len(means)
    return Walkers(len(means), steps, n_apart, shift, float(np.std(means)))
