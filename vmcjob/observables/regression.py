"""Smaller error bars from control variates, where they give them."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from vmcjob.observables.contracts import Quantity
from vmcjob.stats import MIN_INDEPENDENT, Estimate, estimate

MAX_RATIO = 0.8
"""Of the error with controls to that without, for them to be used: chance does not do that."""

N_FOLDS = 5
N_BLOCKS = 100
MIN_STEPS = 100
"""Of a series; shorter ones have too little to find coefficients in."""


def controlled(values: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """A series of the same mean and, where possible, of a smaller error; else the series itself.

        x′_i = x_i − Σ_k c_k z_ik

    with coefficients from a regression in blocks of steps, whose means know of correlations in
    time. Those of a stretch of the series come from the rest of it, so that they do not know the
    numbers that they multiply: the mean is as free of bias as without. Which series is better is
    decided by their errors, with autocorrelation. Of fewer than `MIN_INDEPENDENT` independent
    samples errors are uncertain themselves, and the smaller one may be the luckier: with fewer of
    them, the more it has to be smaller.

    Args:
        values: by step.
        controls: by step and field, each of mean zero; left alone where one is not finite.
    """
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
    better = estimate(found)
    max_ratio = MAX_RATIO * min(1.0, better.n_eff / MIN_INDEPENDENT)
    return found if better.error < max_ratio * estimate(values).error else values


def _coefficients(values: np.ndarray, controls: np.ndarray) -> np.ndarray:
    length = max(1, len(values) // N_BLOCKS)
    n = len(values) // length
    x = values[: n * length].reshape(n, length).mean(axis=1)
    z = controls[: n * length].reshape(n, length, -1).mean(axis=1)
    return np.linalg.lstsq(z - z.mean(axis=0), x - x.mean(), rcond=None)[0]


def controlled_elements(values: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """`controlled` of each element of an array (step, …), by its own controls (step, …, field)."""
    flat = values.reshape(len(values), -1)
    own = controls.reshape(len(values), flat.shape[1], -1)
    columns = [controlled(flat[:, k], own[:, k]) for k in range(flat.shape[1])]
    return np.stack(columns, axis=1).reshape(values.shape)


def beside(
    name: str, plain: Quantity, function: Callable[..., tuple[Estimate, ...]], *better: np.ndarray
) -> dict[str, Quantity]:
    """A quantity from controlled series beside the plain one, under a name of its own.

    {} where it would be no better in any element: what controls do for series, they need not do
    for a function of them.
    """
    estimates = function(*better)
    pairs = zip(estimates, plain.estimates, strict=True)
    if not any(one.error < MAX_RATIO * other.error for one, other in pairs):
        return {}
    words = f"{plain.long_name}, with control variates"
    return {f"{name}_controlled": plain._replace(long_name=words, estimates=estimates)}
