"""The mean of a correlated series and its honest error: blocking, autocorrelation time, pooling."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# Below this many independent samples an error bar is itself too uncertain. For AR(1) chains the
# intervals keep their coverage above it and lose it below (their τ is underestimated by chance).
MIN_INDEPENDENT = 30
# The two halves of a series, and runs of one job, may differ by this many of their error bars.
MAX_DEVIATION = 3.0
# Of runs of one job, errors at equal length may differ by this factor: they are only estimates.
MAX_UNLIKE = 2.0
# Sokal's window: the sum over autocorrelations stops at this many autocorrelation times.
WINDOW = 5.0
# Plateau criterion of blocking: block length³ > FACTOR · n · (2τ)² (Lee et al., PRE 83, 066706).
PLATEAU_FACTOR = 2.0
MIN_BLOCKS = 4
# Means below count as rounded like this one.
SMALLEST_MEAN = 1e-30


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error, in the unit of the series, and whether to trust them."""

    mean: float
    error: float  # infinite when one sample is all there is
    tau: float  # integrated autocorrelation time in steps; 1/2 when the samples are independent
    n_eff: float  # number of independent samples, n / (2 tau)
    n: int
    converged: bool
    why: str  # a sentence when not converged, else empty


def estimate(series: np.ndarray, *, variance: np.ndarray | None = None) -> Estimate:
    """The mean of one stationary, correlated series and its standard error.

    The error is the larger one of blocking (`blocking_error`) and of the summed autocorrelations
    (`window_error`), each widened by Student's factor for the blocks or windows it rests on.

    Args:
        series: one value per step, such as the mean local energy of all walkers.
        variance: the spread of the local energies behind each value. It unmasks walkers that are
            stuck: a series that never changes has no error only if the local energies agree too.

    Not converged, with the reason: too short, drifting, stuck, or not finite.
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


def estimate_function(function: Callable[..., np.ndarray], *series: np.ndarray) -> Estimate:
    """A function of the means of correlated series, such as their ratio, by the jackknife.

    Each step i has the pseudovalue

        p_i = n f(m) − (n − 1) f(m without i),

    of which the mean is f(m) less its bias of order 1/n, and a series as correlated as the others:
    its error comes from blocks (`estimate`), which makes them blocks of the jackknife.

    Args:
        function: of arrays of means, one for each series, whose first axis runs over cases.
        series: with steps along the first axis, of one length.
    """
    columns = [np.asarray(one, np.float64) for one in series]
    n = len(columns[0])
    whole = function(*(one.mean(axis=0, keepdims=True) for one in columns))
    if n < 2:
        return estimate(whole)
    without = function(*((one.sum(axis=0) - one) / (n - 1) for one in columns))
    return estimate(n * whole - (n - 1) * without)


def pool(estimates: Sequence[Estimate]) -> Estimate:
    """The common mean of independent estimates, with the scatter between them in its error.

    Runs may differ by more than their errors, because each ended at its own optimum. Then the
    runs, not the samples, are what there are many of (random effects, DerSimonian and Laird 1986):

        χ² = Σ (mᵢ - m)²/eᵢ²,  m = Σ mᵢ/eᵢ² / Σ 1/eᵢ²
        s² = max(0, (χ² - (k - 1)) / (Σw - Σw²/Σw)),  w = 1/eᵢ²
        m  = Σ wᵢ* mᵢ / Σ wᵢ*,  wᵢ* = 1/(q/nᵢ + s²)      error² = Σ wᵢ*² (eᵢ² + s²) / (Σ wᵢ*)²

    widened by Student's factor in as far as the error stems from the scatter of k runs. The weights
    are by length: q is one and the same for runs that are alike (`_squares_by_length`). Weights
    1/eᵢ² would lean towards runs whose estimated errors happen to be small.

    Every estimate needs a finite mean and error. Not converged when one of them is not, or when
    they differ too much.
    """
    if len(estimates) == 1:
        return estimates[0]
    mean = np.array([item.mean for item in estimates])
    error = np.array([item.error for item in estimates])
    if not (np.isfinite(mean).all() and np.isfinite(error).all() and mean.size):
        raise ValueError("pooling needs estimates, each with a finite mean and error")
    # An error of zero (a constant series) still has the rounding of its numbers; those of zero
    # itself have a square that is none.
    rounding = np.spacing(np.maximum(np.abs(mean), SMALLEST_MEAN))
    square = np.maximum(error, rounding) ** 2
    chi2, between = scatter(mean, square)
    lengths = np.array([item.n for item in estimates])
    weight = 1.0 / (_squares_by_length(square, lengths) + between)
    weight /= weight.sum()
    total = float((weight**2 * (square + between)).sum())
    from_scatter = between * float((weight**2).sum())
    dof = len(estimates) - 1
    factor = student_factor(dof * (total / from_scatter) ** 2) if from_scatter > 0.0 else 1.0
    n = int(lengths.sum())
    n_eff = sum(item.n_eff for item in estimates)
    doubts = _doubts(estimates)
    if _deviation_of_chi2(chi2, dof) > MAX_DEVIATION:
        doubts.append(f"runs disagree beyond their errors (χ²/{dof} = {chi2 / dof:.1f})")
    return Estimate(
        mean=float((weight * mean).sum()),
        error=math.sqrt(total) * factor,
        tau=n / (2.0 * n_eff),
        n_eff=n_eff,
        n=n,
        converged=not doubts,
        why="; ".join(doubts),
    )


def blocking_error(x: np.ndarray) -> tuple[float, float]:
    """Squared error of the mean of x from means over blocks, and its degrees of freedom.

    Blocks grow until they are long enough to be independent, B³ > 2 n (2τ)² with
    2τ = e²(B) / e²(1) (Flyvbjerg and Petersen 1989, with the plateau found as by Lee et al. 2011),
    or until only a few are left, which shows in the degrees of freedom.
    """
    n = x.size
    naive = x.var(ddof=1) / n
    length, square, count = 1, naive, n
    while length**3 < PLATEAU_FACTOR * n * (square / naive) ** 2:
        longer = max(length + 1, length * 3 // 2)
        if n // longer < MIN_BLOCKS:
            break
        length, count = longer, n // longer
        # The remainder is dropped at the start, where a series is least stationary.
        means = x[n - count * length :].reshape(count, length).mean(axis=1)
        square = means.var(ddof=1) / count
    return float(square), count - 1.0


def blocking_curve(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Block lengths, the error of the mean of x that each gives, and how uncertain that is.

    Of k blocks an error is uncertain by the part 1 / √(2 (k - 1)) of itself (Flyvbjerg and Petersen
    1989).
    """
    n = x.size
    lengths = np.unique(np.geomspace(1, max(1, n // MIN_BLOCKS), 25).astype(int))
    errors, uncertainties = [], []
    for length in lengths:
        count = n // length
        means = x[n - count * length :].reshape(count, length).mean(axis=1)
        errors.append(means.std(ddof=1) / math.sqrt(count))
        uncertainties.append(errors[-1] / math.sqrt(2.0 * (count - 1)))
    return lengths, np.array(errors), np.array(uncertainties)


def normalized_autocorrelation(x: np.ndarray) -> np.ndarray:
    """C(t) / C(0) of a series that is not constant, for every t < n."""
    covariance = _autocovariance(x)
    return covariance / covariance[0]


def window_error(x: np.ndarray) -> tuple[float, float]:
    """Squared error of the mean of x from its autocovariance C, and its degrees of freedom.

        e² = (C(0) + 2 Σ_{t ≤ W} C(t)) / (n - 2W - 1),   W ≥ 5 τ(W)

    (Madras and Sokal 1988; the denominator undoes the bias of C by the sample mean, Wolff 2004).
    A window of 2W + 1 steps acts as one sample of e², so n / (2W + 1) are its degrees of freedom.
    """
    n = x.size
    covariance = _autocovariance(x)
    tau = np.cumsum(covariance) / covariance[0] - 0.5
    closed = np.flatnonzero(np.arange(n) >= WINDOW * tau)
    w = min(int(closed[0]) if closed.size else n, n // 4)
    square = 2.0 * tau[w] * covariance[0] / (n - 2 * w - 1)
    return max(float(square), 0.0), n / (2.0 * w + 1.0)


def _error_and_n_eff(x: np.ndarray) -> tuple[float, float]:
    """The more careful of the two errors, and the number of independent samples it amounts to.

    From e² = σ² / n_eff and the biased sample variance s² = σ² - e² follows n_eff = s²/e² + 1. The
    error of uncorrelated samples is the least, for anticorrelation is not worth the risk.
    """
    candidates = [
        (student_factor(dof) * math.sqrt(square), square)
        for square, dof in (blocking_error(x), window_error(x), (x.var(ddof=1) / x.size, x.size))
    ]
    error, square = max(candidates)
    return error, min(float(x.size), float(x.var() / square + 1.0))


def _estimate_of_constant(x: np.ndarray, variance: np.ndarray | None) -> Estimate:
    n = x.size
    spread = 0.0 if variance is None else math.sqrt(float(np.mean(variance)))
    if spread > 0.0:
        why = "the energy never changes although local energies differ: the walkers are stuck"
        return Estimate(float(x[0]), spread, n / 2.0, 1.0, n, False, why)
    return Estimate(float(x[0]), 0.0, 0.5, float(n), n, True, "")


def _doubt(x: np.ndarray, n_eff: float) -> str:
    """Why the mean of x is not to be trusted yet; empty when it is."""
    half = x.size // 2
    if half >= 2 and n_eff >= 2.0:
        first, second = x[:half], x[-half:]
        errors = [_error_and_n_eff(part)[0] for part in (first, second) if np.ptp(part) > 0.0]
        difference = abs(float(first.mean() - second.mean()))
        if difference > MAX_DEVIATION * math.hypot(*errors):
            bars = difference / math.hypot(*errors) if errors else math.inf
            return f"drifts: its halves differ by {bars:.1f} error bars"
    if n_eff < MIN_INDEPENDENT:
        return f"too short: {n_eff:.0f} independent samples, at least {MIN_INDEPENDENT} are needed"
    return ""


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """C(t) = Σ_i (x_i - m)(x_{i+t} - m) / (n - t) for every t < n, by Fourier transform."""
    n = x.size
    length = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(x - x.mean(), length)
    return np.fft.irfft(spectrum * spectrum.conj(), length)[:n] / (n - np.arange(n))


def student_factor(dof: float) -> float:
    """Half width of Student's 68.27 % interval, in standard errors.

    The Cornish-Fisher series of the quantile at one Gaussian standard deviation; within 2 % for
    one degree of freedom (1.837) and better for more.
    """
    return 1.0 + 1.0 / (2.0 * dof) + 1.0 / (4.0 * dof**2) + 1.0 / (16.0 * dof**3)


def _squares_by_length(square: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Squared errors as the lengths alone would have them, of runs that are alike.

    What one step is worth is estimated for all of them together, so that no run's weight hangs on
    its own luck. Only a run that is much noisier than most keeps its own error.
    """
    per_step = square * lengths
    typical = np.sort(per_step)[(per_step.size - 1) // 2]
    is_alike = per_step <= MAX_UNLIKE**2 * typical
    return np.where(is_alike, per_step[is_alike].mean(), per_step) / lengths


def _doubts(estimates: Sequence[Estimate]) -> list[str]:
    """Why estimates are not to be trusted: each kind of reason once, in the words of the worst."""
    kinds: dict[str, list[Estimate]] = {}
    for item in estimates:
        if not item.converged:
            kinds.setdefault(item.why.partition(":")[0], []).append(item)
    return [
        f"{len(items)} of {len(estimates)} runs: {min(items, key=lambda item: item.n_eff).why}"
        for items in kinds.values()
    ]


def scatter(mean: np.ndarray, square: np.ndarray) -> tuple[float, float]:
    """χ² of the means about their weighted mean, and the variance between runs it implies."""
    weight = 1.0 / square
    common = (weight * mean).sum() / weight.sum()
    chi2 = float((weight * (mean - common) ** 2).sum())
    scale = weight.sum() - (weight**2).sum() / weight.sum()
    return chi2, max(0.0, float((chi2 - (mean.size - 1)) / scale))


def _deviation_of_chi2(chi2: float, dof: int) -> float:
    """How many standard deviations χ² lies above its expectation (Wilson and Hilferty 1931)."""
    spread = 2.0 / (9.0 * dof)
    return ((chi2 / dof) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
