"""Explosions of a training: energies that its recent steps, or physics, cannot explain.

Two numbers are judged: the median of the local energies over walkers, which a single lost walker
does not change, and their mean, which cannot lie below the ground state. Nor can the median lie far
below, as long as the local energy varies as before.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

WINDOW = 100
"""Steps that say how large the fluctuations are, at most; strange ones are not among them."""
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
SURGE = 100.0
"""A gradient this many times longer than the median of its window is a surge."""
AFTER_SURGE = 0.5
"""Factor on deviation and spread for `SURGE_STEPS` steps from a surge on: half the rise will do."""
SURGE_STEPS = 2 * PERSISTENCE
SIGMA_OF_MEDIAN = 1.2533  # of a normal distribution, in standard errors of its mean
SIGMA_PER_MAD = 1.4826  # of a normal distribution


class Judgement(NamedTuple):
    """The judgement of the steps so far."""

    is_strange: bool  # of the last one: nothing is committed until it is explained
    explosion: int | None  # the step, counted from 1, with which an explosion began


NOTHING_STRANGE = Judgement(False, None)


MEDIAN, ENERGY, VARIANCE, GRAD_NORM = range(4)  # columns of a step


class ExplosionWatch:
    """Watches one training from its beginning, or from the point where it was continued.

    Args:
        bound: an energy below the ground state's, hartree.
        n_walkers: total number of walkers.
    """

    def __init__(self, bound: float, n_walkers: int) -> None:
        self._bound, self._n_walkers = bound, n_walkers
        self._past = np.empty((0, 4))
        self._n_past = 0  # all steps so far but strange ones
        self._n_judged = 0  # of these, the steps since the training was last taken up
        self._n_strange = self._n_surge = 0

    def accept(self, rows: Mapping[str, np.ndarray]) -> None:
        """Accept committed steps without judging them; later steps are compared with them."""
        self._past = np.concatenate([self._past, _steps(rows)])[-WINDOW:]
        self._n_past += len(rows["energy"])

    def judge(self, rows: Mapping[str, np.ndarray], last: int) -> Judgement:
        """Judge further steps; `last` is the number of the last one."""
        steps = _steps(rows)
        for number, step in enumerate(steps, start=last - len(steps) + 1):
            if self._is_strange(step):
                self._n_strange += 1
                if self._n_strange == PERSISTENCE:
                    return Judgement(True, number - PERSISTENCE + 1)
                continue
            self._n_strange = 0
            self._past = np.concatenate([self._past[1 - WINDOW :], step[None]])
            self._n_past += 1
            self._n_judged += 1
        return Judgement(self._n_strange > 0, None)

    def _is_strange(self, step: np.ndarray) -> bool:
        if not len(self._past):
            return False
        # The later half of a short training: its first fall would widen what is usual.
        n_window = min(WINDOW, max(MIN_WINDOW, self._n_past // 2))
        window = self._past[-n_window:]
        centre, _, variance, usual_norm = np.median(window, axis=0)
        # The variance of before: a walker in a pole brings its own, and would excuse itself.
        spread = np.sqrt(variance)
        of_mean = spread / np.sqrt(self._n_walkers)
        is_short = len(window) < MIN_WINDOW
        self._n_surge = max(0, self._n_surge - 1)
        if not is_short and step[GRAD_NORM] > SURGE * usual_norm:
            self._n_surge = SURGE_STEPS
        ease = AFTER_SURGE if self._n_surge else 1.0
        if step[ENERGY] < self._bound - MAX_DEVIATION * of_mean:
            return True
        if step[MEDIAN] < self._bound - MAX_DEVIATION * spread:  # half of the walkers are in poles
            return True
        if step[MEDIAN] <= np.min(self._past[:, MEDIAN]) + ease * MIN_SPREAD * spread:
            return False  # most steps, at no further cost: all limits lie above
        if is_short:
            sigma, least = SIGMA_OF_MEDIAN * of_mean, FIRST_SPREAD * spread
        else:
            away = np.median(np.abs(window[:, MEDIAN] - centre))
            sigma, least = SIGMA_PER_MAD * away, MIN_SPREAD * spread
        rise = max(MIN_RISE, ease * MAX_DEVIATION * sigma, ease * least)
        return bool(step[MEDIAN] > centre + rise) or self._is_above_best(step, spread)

    def _is_above_best(self, step: np.ndarray, spread: float) -> bool:
        """Whether mean and median both lie far above the best stretch that is still remembered.

        Its own fluctuations are the measure: a window that rises slowly finds no step strange.
        Steps before the training was last taken up do not count: a run that went back to a step
        after its best stretch could never commit again.
        """
        n_blocks = min(self._n_judged, len(self._past)) // MIN_WINDOW
        if n_blocks < 2:
            return False
        blocks = self._past[-n_blocks * MIN_WINDOW :].reshape(n_blocks, MIN_WINDOW, -1)
        best = blocks[np.argmin(np.median(blocks[:, :, MEDIAN], axis=1))]
        median, energy = np.median(best[:, [MEDIAN, ENERGY]], axis=0)
        sigma = SIGMA_PER_MAD * np.median(np.abs(best[:, MEDIAN] - median))
        rise = max(MIN_RISE, MAX_DEVIATION * sigma, MIN_SPREAD * spread)
        return bool(step[MEDIAN] > median + rise and step[ENERGY] > energy + rise)


def _steps(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """These rows as an array with a column for each quantity; old stores lack some."""
    energy = rows["energy"]
    norms = rows.get("grad_norm", np.full(len(energy), np.nan))
    return np.stack([rows.get("median", energy), energy, rows["variance"], norms], axis=1)
