"""The mean of a correlated series, its error, and whether both can be trusted."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vmcjob.stats.correlation import (
    blocking_errors,
    centred,
    student_factor,
    sums_of_products,
    window_errors,
)

# With fewer independent samples, the error bar itself is too uncertain. For AR(1) chains, error
# intervals keep their coverage above this number and lose it below: τ is underestimated by chance.
MIN_INDEPENDENT = 30
# Largest allowed difference between the halves of a series, and between runs of one job, in error
# bars.
MAX_DEVIATION = 3.0


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error, in the series' unit, and whether both can be trusted."""

    mean: float
    error: float  # infinite for a single sample
    tau: float  # integrated autocorrelation time in steps; 1/2 for independent samples
    n_eff: float  # number of independent samples, n / (2 tau)
    n: int
    converged: bool
    why: str  # the reason if not converged, else empty


def estimate(series: np.ndarray, *, variance: np.ndarray | None = None) -> Estimate:
    """The mean of one stationary, correlated series and its standard error.

    The error is the larger of two errors: from blocking (`blocking_errors`) and from the sum of
    autocorrelations (`window_errors`). Both are widened by Student's factor for their degrees of
    freedom.

    Args:
        series: one value per step, such as the mean local energy of all walkers.
        variance: the variance of the local energies behind each value. It reveals walkers that are
            stuck: the error of a constant series is zero only if all local energies are equal.

    Not converged, with the reason, if the series is too short, drifts, is stuck or not finite.
    """
    x = np.asarray(series, dtype=np.float64)
    n = x.size
    n_bad = n - int(np.isfinite(x).sum())
    if n == 0:
        return Estimate(math.nan, math.inf, 0.5, 0.0, 0, False, "no samples")
    if n_bad:
        why = f"{n_bad} of {n} samples are not finite"
        return Estimate(math.nan, math.inf, 0.5, 0.0, n, False, why)
    if n == 1:
        return Estimate(float(x[0]), math.inf, 0.5, 1.0, 1, False, "only one sample")
    if np.ptp(x) == 0.0:
        return _estimate_of_constant(x, variance)
    error, n_eff = _error_and_n_eff(x)
    why = _doubt(x, n_eff)
    return Estimate(float(x.mean()), error, n / (2.0 * n_eff), n_eff, n, not why, why)


def standard_error(series: np.ndarray) -> float:
    """The error of `estimate`, without the convergence check, which takes as long again."""
    return float(standard_errors(np.asarray(series)[None])[0])


def standard_errors(rows: np.ndarray) -> np.ndarray:
    """Standard errors of several series (rows); faster than one after the other."""
    x = np.asarray(rows, dtype=np.float64)
    found = np.full(len(x), math.inf)
    if x.shape[1] > 1:
        spread = np.ptp(x, axis=1)
        found[spread == 0.0] = 0.0
        varies = np.isfinite(x).all(axis=1) & (spread > 0.0)
        found[varies] = _errors_and_n_eff(x[varies])[0]
    return found


def estimate_function(function: Callable[..., np.ndarray], *series: np.ndarray) -> Estimate:
    """A function of the means of correlated series, such as their ratio, by the jackknife."""
    return estimate(pseudovalues(function, *series))


def pseudovalues(function: Callable[..., np.ndarray], *series: np.ndarray) -> np.ndarray:
    """The series whose mean estimates a function of the means of correlated series.

    Each step i has the jackknife's pseudovalue

        p_i = n f(m) − (n − 1) f(m without i).

    The mean of p is f(m) without its bias of order 1/n. The series p is as correlated as the input
    series, and `estimate` computes its error from blocks, as a blocked jackknife would.

    Args:
        function: takes arrays of means, one for each series; the first axis runs over cases.
        series: arrays of equal length, with steps along the first axis.
    """
    columns = [np.asarray(one, np.float64) for one in series]
    n = len(columns[0])
    whole = function(*(one.mean(axis=0, keepdims=True) for one in columns))
    if n < 2:
        return whole
    without = function(*((one.sum(axis=0) - one) / (n - 1) for one in columns))
    return n * whole - (n - 1) * without


def candidate_errors(rows: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Squared errors of the means of series (rows) and degrees of freedom, by method.

    The error of uncorrelated samples is a lower bound: anticorrelation is not used.
    """
    y = centred(np.asarray(rows, np.float64))
    n = y.shape[1]
    return {
        "independent rows": (sums_of_products(y, y) / n / (n - 1), np.full(len(y), float(n))),
        "blocking": blocking_errors(y),
        "autocorrelations": window_errors(y),
    }


def _error_and_n_eff(x: np.ndarray) -> tuple[float, float]:
    """Error and effective number of samples of one series, see `_errors_and_n_eff`."""
    error, n_eff = _errors_and_n_eff(x[None])
    return float(error[0]), float(n_eff[0])


def _errors_and_n_eff(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest of the candidate errors, and the corresponding number of independent samples.

    From e² = σ² / n_eff and the biased sample variance s² = σ² - e² follows n_eff = s²/e² + 1.
    """
    n = rows.shape[1]
    found = candidate_errors(rows)
    error, square = np.zeros(len(rows)), np.zeros(len(rows))
    for its_square, dof in found.values():
        its_error = student_factor(dof) * np.sqrt(its_square)
        square = np.where(its_error > error, its_square, square)
        error = np.maximum(its_error, error)
    least, _ = found["independent rows"]  # s² / (n - 1)
    return error, np.minimum(float(n), (n - 1) * least / square + 1.0)


def _estimate_of_constant(x: np.ndarray, variance: np.ndarray | None) -> Estimate:
    n = x.size
    spread = 0.0 if variance is None else math.sqrt(float(np.mean(variance)))
    if spread > 0.0:
        why = "the energy never changes although local energies differ: the walkers are stuck"
        return Estimate(float(x[0]), spread, n / 2.0, 1.0, n, False, why)
    return Estimate(float(x[0]), 0.0, 0.5, float(n), n, True, "")


def _doubt(x: np.ndarray, n_eff: float) -> str:
    """The reason why the mean of x cannot be trusted yet; empty if it can."""
    half = x.size // 2
    if half >= 2 and n_eff >= 2.0:
        first, second = x[:half], x[-half:]
        difference = abs(float(first.mean() - second.mean()))
        # The error of uncorrelated samples is a lower bound, and cheap to compute.
        least = math.sqrt(float(first.var() + second.var()) / half)
        if difference > MAX_DEVIATION * least:
            errors = [_error_and_n_eff(part)[0] for part in (first, second) if np.ptp(part) > 0.0]
            bars = difference / math.hypot(*errors) if errors else math.inf
            if bars > MAX_DEVIATION:
                return f"drifts: its halves differ by {bars:.1f} error bars"
    if n_eff < MIN_INDEPENDENT:
        n_whole = math.floor(n_eff)
        return f"too short: {n_whole} independent samples, at least {MIN_INDEPENDENT} are needed"
    return ""
