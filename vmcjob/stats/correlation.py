"""Errors of the mean of one correlated series: from blocks, and from autocorrelations."""

import math

import numpy as np

# Sokal's window: the sum over autocorrelations stops at this many autocorrelation times.
WINDOW = 5.0
# Plateau criterion of blocking: block length³ > FACTOR · n · (2τ)² (Lee et al., PRE 83, 066706).
PLATEAU_FACTOR = 2.0
MIN_BLOCKS = 4
# Up to this lag, autocovariances are sums of products: soon done, and mostly enough for a window.
MAX_SUMMED_LAG = 50


def blocking_error(x: np.ndarray) -> tuple[float, float]:
    """Squared error of the mean of x from means over blocks, and its degrees of freedom.

    Blocks grow until they are long enough to be independent, B³ > 2 n (2τ)² with
    2τ = e²(B) / e²(1) (Flyvbjerg and Petersen 1989, with the plateau found as by Lee et al. 2011),
    or until only a few are left, which shows in the degrees of freedom.
    """
    n = x.size
    naive = x.var(ddof=1) / n
    # Up to every row, so that the sum over a block, however long, is one difference.
    sums = np.concatenate([[0.0], np.cumsum(x - x.mean())])
    length, square, count = 1, naive, n
    while length**3 < PLATEAU_FACTOR * n * (square / naive) ** 2:
        longer = max(length + 1, length * 3 // 2)
        if n // longer < MIN_BLOCKS:
            break
        length, count = longer, n // longer
        # The remainder is dropped at the start, where a series is least stationary.
        blocks = np.diff(sums[n - count * length :: length])
        deviation = float(np.einsum("i,i->", blocks, blocks)) - float(blocks.sum()) ** 2 / count
        square = max(deviation, 0.0) / (count - 1) / length**2 / count
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
    window = _closed_window(x)
    if window is None:
        covariance = _autocovariance(x)
        taus = np.cumsum(covariance) / covariance[0] - 0.5
        closed = np.flatnonzero(np.arange(n) >= WINDOW * taus)
        w = min(int(closed[0]) if closed.size else n, n // 4)
        window = w, float(taus[w]), float(covariance[0])
    w, tau, covariance_0 = window
    square = 2.0 * tau * covariance_0 / (n - 2 * w - 1)
    return max(square, 0.0), n / (2.0 * w + 1.0)


def _closed_window(x: np.ndarray) -> tuple[int, float, float] | None:
    """W, τ(W) and C(0) lag by lag, which is sooner done than all of C; None if W is large."""
    y = x - x.mean()
    n = x.size
    covariance_0 = float(np.sum(y * y)) / n
    tau = 0.5
    for w in range(min(n, MAX_SUMMED_LAG)):
        if w > 0:
            # Not by BLAS, which would start threads for each of these.
            tau += float(np.einsum("i,i->", y[: n - w], y[w:])) / (n - w) / covariance_0
        if w >= WINDOW * tau or w >= n // 4:
            return w, tau, covariance_0
    return None


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
