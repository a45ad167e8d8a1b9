"""Errors of means of correlated series, from blocks and from autocorrelations.

Functions of several series take them as rows. The rows are centred, and none is all zeros.
"""

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

Dof = TypeVar("Dof", float, np.ndarray)

# Sokal's window: the sum over autocorrelations stops at this many autocorrelation times.
WINDOW = 5.0
# Plateau criterion of blocking: block length³ > FACTOR · n · (2τ)² (Lee et al., PRE 83, 066706).
PLATEAU_FACTOR = 2.0
MIN_BLOCKS = 4
# Up to this lag, autocovariances are computed as sums of products. This is fast, and mostly enough.
MAX_SUMMED_LAG = 50


def centred(rows: np.ndarray) -> np.ndarray:
    """The series (rows) minus their means."""
    return rows - rows.mean(axis=1, keepdims=True)


def sums_of_products(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σ_j x_ij y_ij for each row i. Without BLAS, which would start threads for each call."""
    return np.einsum("ij,ij->i", x, y)


def blocking_errors(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared error of each row's mean from averages over blocks, and its degrees of freedom.

    The block length B grows until blocks are independent: B³ > 2 n (2τ)² with 2τ = e²(B) / e²(1).
    It stops at `MIN_BLOCKS` blocks, which then give few degrees of freedom. See Flyvbjerg and
    Petersen 1989; the plateau criterion is from Lee et al. 2011.
    """
    n = y.shape[1]
    naive = sums_of_products(y, y) / (n - 1) / n
    square, count, growing = naive.copy(), np.full(len(y), n), np.arange(len(y))
    for length in _block_lengths(n):
        n_blocks = n // length
        rows = y if growing.size == len(y) else y[growing]
        # The remainder is dropped at the start, where a series is least stationary.
        blocks = rows[:, n - n_blocks * length :].reshape(-1, n_blocks, length).sum(axis=2)
        deviation = sums_of_products(blocks, blocks) - blocks.sum(axis=1) ** 2 / n_blocks
        square[growing] = np.maximum(deviation, 0.0) / (n_blocks - 1) / length**2 / n_blocks
        count[growing] = n_blocks
        growing = np.flatnonzero(length**3 < PLATEAU_FACTOR * n * (square / naive) ** 2)
        if growing.size == 0:
            break
    return square, count - 1.0


def _block_lengths(n: int) -> Iterator[int]:
    """Block lengths, each half as long again; the first is long enough for independent steps."""
    length = 1
    while n // (longer := max(length + 1, length * 3 // 2)) >= MIN_BLOCKS:
        if length**3 >= PLATEAU_FACTOR * n:
            yield length
        length = longer
    yield length


def blocking_curve(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Block lengths, the error of the mean of x for each, and the uncertainty of that error.

    With k blocks, the relative uncertainty of an error is 1 / √(2 (k - 1)) (Flyvbjerg and Petersen
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


def window_errors(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared error of each row's mean from its autocovariance C, and its degrees of freedom.

        e² = (C(0) + 2 Σ_{t ≤ W} C(t)) / (n - 2W - 1),   W ≥ 5 τ(W)

    (Madras and Sokal 1988; the denominator corrects the bias of C from the sample mean, Wolff
    2004). A window of 2W + 1 steps acts as one sample of e², so e² has n / (2W + 1) degrees of
    freedom.
    """
    n = y.shape[1]
    covariance_0 = sums_of_products(y, y) / n
    width, tau = _windows(y, covariance_0)
    square = 2.0 * tau * covariance_0 / (n - 2 * width - 1)
    return np.maximum(square, 0.0), n / (2.0 * width + 1.0)


def _windows(y: np.ndarray, covariance_0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W and τ(W) of each row: lag by lag, which is fast, and from the full C(t) if W is large."""
    n = y.shape[1]
    width, tau = np.full(len(y), -1), np.full(len(y), 0.5)
    for lag in range(min(n, MAX_SUMMED_LAG)):
        is_open = width < 0
        if lag > 0:
            covariance = sums_of_products(y[:, : n - lag], y[:, lag:]) / (n - lag)
            tau += np.where(is_open, covariance / covariance_0, 0.0)
        width[is_open & ((lag >= WINDOW * tau) | (lag >= n // 4))] = lag
        if np.all(width >= 0):
            break
    for row in np.flatnonzero(width < 0):
        taus = np.cumsum(normalized_autocorrelation(y[row])) - 0.5
        closed = np.flatnonzero(np.arange(n) >= WINDOW * taus)
        width[row] = min(int(closed[0]) if closed.size else n, n // 4)
        tau[row] = taus[width[row]]
    return width, tau


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """C(t) = Σ_i (x_i - m)(x_{i+t} - m) / (n - t) for every t < n, by Fourier transform."""
    n = x.size
    length = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(x - x.mean(), length)
    return np.fft.irfft(spectrum * spectrum.conj(), length)[:n] / (n - np.arange(n))


def student_factor(dof: Dof) -> Dof:
    """Half width of Student's 68.27 % interval, in standard errors.

    Cornish-Fisher series of the quantile at one Gaussian standard deviation: within 2 % for one
    degree of freedom (1.837), and better for more.
    """
    return 1.0 + 1.0 / (2.0 * dof) + 1.0 / (4.0 * dof**2) + 1.0 / (16.0 * dof**3)
