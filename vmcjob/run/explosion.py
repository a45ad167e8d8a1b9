"""Whether a training explodes: energies that its recent steps, or physics, cannot explain.

Judged by the median of the local energies over walkers, which one lost walker does not move, and by
their mean, which cannot lie below the ground state.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

WINDOW = 100
"""Steps that say how large the fluctuations are; strange ones are not among them."""
MIN_WINDOW = 20
"""Fewer steps tell of fluctuations only what the walkers of a step do."""
PERSISTENCE = 5
"""Strange steps in a row that are an explosion: fewer may be a passing fluctuation."""
MAX_DEVIATION = 12.0
"""In standard deviations of the median energy; a step of training is worth a few at most."""
MIN_RISE = 5e-3
"""In hartree: what rises by less is no explosion, however quiet it was before."""
MIN_SPREAD = 0.5
"""In standard deviations of the local energy of a walker: nor is what rises by less than that, as
the first steps of a training may before they find their way."""
FIRST_SPREAD = 1.0
"""The same for a training's first steps, of which the very first is the state it begins with."""
SIGMA_OF_MEDIAN = 1.2533  # of a normal distribution, in standard errors of its mean
SIGMA_PER_MAD = 1.4826  # of a normal distribution


class Judgement(NamedTuple):
    """What to think of the steps so far."""

    is_strange: bool  # of the last one: nothing is committed until it is explained
    explosion: int | None  # the step, counted from 1, with which an explosion began


NOTHING_STRANGE = Judgement(False, None)


class ExplosionWatch:
    """Looks at one training from its beginning, or from where it was taken up.

    Args:
        bound: an energy below the ground state's, hartree.
        n_walkers: in all.
    """

    def __init__(self, bound: float, n_walkers: int) -> None:
        self._bound, self._n_walkers = bound, n_walkers
        self._medians: deque[float] = deque(maxlen=WINDOW)
        self._variances: deque[float] = deque(maxlen=WINDOW)
        self._n_strange = 0

    def accept(self, rows: Mapping[str, np.ndarray]) -> None:
        """Take steps as they are: what is committed is what later steps are compared with."""
        self._medians.extend(_medians(rows))
        self._variances.extend(rows["variance"])

    def judge(self, rows: Mapping[str, np.ndarray], last: int) -> Judgement:
        """Look at some more steps, of which `last` is the last."""
        medians = _medians(rows)
        first = last - len(medians) + 1
        for step, (median, energy, variance) in enumerate(
            zip(medians, rows["energy"], rows["variance"], strict=True), start=first
        ):
            if self._is_strange(median, energy):
                self._n_strange += 1
                if self._n_strange == PERSISTENCE:
                    return Judgement(True, step - PERSISTENCE + 1)
                continue
            self._n_strange = 0
            self._medians.append(median)
            self._variances.append(variance)
        return Judgement(self._n_strange > 0, None)

    def _is_strange(self, median: float, energy: float) -> bool:
        if not self._medians:
            return False
        past = np.array(self._medians)
        centre = np.median(past)
        # The variance of before: a walker in a pole brings its own, and would excuse itself.
        spread = np.sqrt(np.median(self._variances))
        of_mean = spread / np.sqrt(self._n_walkers)
        if len(past) < MIN_WINDOW:
            sigma, least = SIGMA_OF_MEDIAN * of_mean, FIRST_SPREAD * spread
        else:
            sigma, least = SIGMA_PER_MAD * np.median(np.abs(past - centre)), MIN_SPREAD * spread
        rise = max(MAX_DEVIATION * sigma, MIN_RISE, least)
        lowest = self._bound - MAX_DEVIATION * of_mean
        return bool(median > centre + rise or energy < lowest)


def _medians(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    return rows.get("median", rows["energy"])  # stores of before have no medians
