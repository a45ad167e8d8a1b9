"""Evidence against an evaluated energy: the best stretch of its training, and its walkers."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from vmcjob.stats import Estimate, Walkers, standard_error

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
MIN_SHIFT = 1e-4
"""In hartree: walkers, or a single step, that shift the mean by less are not worth a word, and
neither are seeds that differ by less. A wave function that is all but exact has local energies so
narrow that one walker near a node stands out."""
MAX_SHIFT = 0.5
"""Error bars by which walkers that stay apart, or a single step, may shift the mean."""
MAX_ERROR_RATIO = 3.0
"""Of the error by how walkers differ to the error bar."""
MAX_RATIO_IF_APART = 2.0
"""The same where some walkers are apart. In 960 trials of right series with 30 or more independent
samples, of six kinds of noise, the ratio was 1.6 at most."""
MAX_RATIO_IF_KNOWN = 1.7
"""The same for an error bar that is known: beyond, energies may be correlated over more steps than
their own series shows."""
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


def read_walkers(record: object) -> Walkers | None:
    """The comparison of walkers that a store has recorded; None in stores of earlier releases."""
    if not isinstance(record, Mapping) or record.keys() != set(Walkers._fields):
        return None
    numbers: dict[str, Any] = dict(record)  # JSON
    return Walkers(**numbers)


def doubt_of_walkers(walkers: Walkers | None, energy: Estimate) -> str:
    """Why the error bar may be too small, from how walkers differ; empty if it agrees with them."""
    if walkers is None or walkers.error <= max(MIN_SHIFT, MAX_RATIO_IF_KNOWN * energy.error):
        return ""
    return f"by how its walkers differ, its error is {1e3 * walkers.error:.2g} mHa"


def against_walkers(walkers: Walkers | None, energy: Estimate) -> Iterator[str]:
    """Sentences about walkers that are trapped, which a mean over walkers does not show."""
    if walkers is None:
        return
    are_apart = abs(walkers.shift) > max(MIN_SHIFT, MAX_SHIFT * energy.error)
    if are_apart and walkers.error > MAX_RATIO_IF_APART * energy.error:
        who = f"{walkers.n_apart} of its {walkers.n} walkers stay apart from the others"
        yield f"{who} and shift its energy by {1e3 * walkers.shift:.3g} mHa"
    elif walkers.error > max(MIN_SHIFT, MAX_ERROR_RATIO * energy.error):
        ratio = walkers.error / energy.error if energy.error else np.inf
        yield f"its walkers do not mix: by how they differ, its error is {ratio:.0f} times as large"
