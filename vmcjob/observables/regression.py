"""Smaller error bars from control variates, if they reduce the error."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from vmcjob.observables.contracts import Quantity
from vmcjob.stats import MIN_INDEPENDENT, Estimate, estimate

MAX_RATIO = 0.8
"""Largest ratio of the errors with and without controls at which controls are used, with enough
independent samples: a smaller ratio is rare by chance."""

N_FOLDS = 5
N_BLOCKS = 100
BLOCKS_PER_CONTROL = 10
"""At least so many blocks for each control, if there are enough steps."""
MIN_STEPS = 100
"""Shortest series with controls; shorter ones do not determine the coefficients."""


def controlled(values: np.ndarray, *controls: np.ndarray) -> np.ndarray:
    """A series with the same mean and, if possible, a smaller error; else the series itself.

        x′_i = x_i − Σ_k c_k z_ik

    Of several sets of controls, a later one is used if it reduces the error that much again.

    The coefficients come from a regression of means over blocks of steps, which include
    correlations in time. Each stretch of the series uses coefficients from the rest of the series,
    so they are independent of the numbers that they multiply, and the mean has no bias.

    The better series is chosen by its error, with autocorrelation. With few independent samples,
    errors are uncertain, and the smaller one may be smaller by luck: below `MIN_INDEPENDENT`, or
    `BLOCKS_PER_CONTROL` for each control of a later set. The fewer samples there are, the smaller
    the error has to be. They are counted in the series as it was, too, since noise of the
    coefficients hides correlations.

    Args:
        values: by step.
        controls: by step and field, each of mean zero; not used if one is not finite.
    """
    best, plain = values, estimate(values)
    best_error = plain.error
    for place, one in enumerate(controls):
        found = _regressed(values, one)
        if found is values:
            continue
        better = estimate(found)
        needed = max(MIN_INDEPENDENT, BLOCKS_PER_CONTROL * one.shape[1] if place else 0)
        max_ratio = MAX_RATIO * min(1.0, min(better.n_eff, plain.n_eff) / needed)
        if better.error < max_ratio * best_error:
            best, best_error = found, better.error
    return best


def _regressed(values: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """The series minus its regression on the controls; itself if the series has none."""
    if len(values) < MIN_STEPS or not np.isfinite(controls).all() or not np.isfinite(values).all():
        return values
    spread = controls.std(axis=0)
    useful = controls[:, spread > 0.0] / spread[spread > 0.0]
    if not useful.shape[1] or np.ptp(values) == 0.0:
        return values
    edges = np.linspace(0, len(values), N_FOLDS + 1).astype(int)
    found = values.astype(float)
    for first, last in pairwise(edges):
        rest = np.r_[0:first, last : len(values)]
        found[first:last] -= useful[first:last] @ _coefficients(values[rest], useful[rest])
    return found


def _coefficients(values: np.ndarray, controls: np.ndarray) -> np.ndarray:
    n_blocks = max(N_BLOCKS, BLOCKS_PER_CONTROL * controls.shape[1])
    length = max(1, len(values) // n_blocks)
    n = len(values) // length
    x = values[: n * length].reshape(n, length).mean(axis=1)
    z = controls[: n * length].reshape(n, length, -1).mean(axis=1)
    return np.linalg.lstsq(z - z.mean(axis=0), x - x.mean(), rcond=None)[0]


def controlled_elements(values: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """`controlled` for each element of an array (step, …), with its controls (step, …, field)."""
    flat = values.reshape(len(values), -1)
    own = controls.reshape(len(values), flat.shape[1], -1)
    columns = [controlled(flat[:, k], own[:, k]) for k in range(flat.shape[1])]
    return np.stack(columns, axis=1).reshape(values.shape)


def beside(
    name: str, plain: Quantity, function: Callable[..., tuple[Estimate, ...]], *better: np.ndarray
) -> dict[str, Quantity]:
    """The quantity from controlled series, under its own name; {} if no element is better.

    Controls that reduce the error of series need not reduce the error of a function of them.
    """
    estimates = function(*better)
    pairs = zip(estimates, plain.estimates, strict=True)
    if not any(one.error < MAX_RATIO * other.error for one, other in pairs):
        return {}
    words = f"{plain.long_name}, with control variates"
    return {f"{name}_controlled": plain._replace(long_name=words, estimates=estimates)}
