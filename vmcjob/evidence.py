"""Sentences against an evaluated energy that compare it with the best stretch of its training."""

from collections.abc import Iterator

import numpy as np

from vmcjob.stats import Estimate, standard_error

MIN_STRETCH = 20
"""Steps of a stretch at least: fewer do not tell their own error."""
MIN_STRETCHES = 3
"""A training of fewer has no best one."""
CERTAIN_OF_BEST = 5.0
"""Standard errors above the best of many stretches. In trials with normal, skewed and heavy-tailed
noise, fewer than 1 in 1000 right runs lay that far above theirs by chance; with a correlation time
of 14 steps and stretches of 20, 1 in 200."""
MIN_RISE = 1e-3
"""In hartree: an evaluation that lies above by less is not worth a word."""
ERROR_OF_MEDIAN = 1.2533  # of a normal distribution, in standard errors of its mean


def above_best_stretch(
    train: np.ndarray, evaluate: np.ndarray, energy: Estimate
) -> Iterator[tuple[float, int, int]]:
    """By how much, in hartree, an evaluation lies above the best stretch, and its steps.

    A stretch is a tenth of the training. Medians of steps are compared with medians of steps: a
    single walker near a node moves a mean, and would make a stretch the best.

    Args:
        train, evaluate: energies of all steps, hartree.
        energy: of the evaluation.
    """
    length = max(MIN_STRETCH, len(train) // 10)
    n_stretches = len(train) // length
    if n_stretches < MIN_STRETCHES:
        return
    first = len(train) - n_stretches * length
    medians = np.median(train[first:].reshape(n_stretches, length), axis=1)
    best = int(np.argmin(medians))
    begin = first + best * length
    rise = float(np.median(evaluate) - medians[best])
    if rise <= MIN_RISE:
        return
    stretch = train[begin : begin + length]
    as_evaluated = energy.error * float(np.sqrt(energy.n / length))
    error = ERROR_OF_MEDIAN * max(as_evaluated, standard_error(stretch))
    if rise > CERTAIN_OF_BEST * float(np.hypot(energy.error, error)):
        yield rise, begin + 1, begin + length
