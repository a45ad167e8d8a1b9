"""The energy of a wave function without variance, and what a training has left to gain.

An eigenstate has no variance. Near one both are of second order in what is left to learn, and if
what is left always has the same shape, the energy is a straight line of the variance,

    E = E₀ + k σ²,

which ends at E₀ (Kwon, Ceperley and Martin 1993; for networks arXiv:2010.01931 and later). That is
an assumption, and not a bound: E₀ stands beside an energy, never in its place. What is left to gain
by longer training is k σ² of the evaluation, within a factor of about two.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FITTED = 0.8
"""The part of a training, its end, that the line goes through."""
N_BLOCKS = 20
"""Points of the line."""
MIN_BLOCK = 10
"""Steps of a block."""
MIN_BLOCKS = 5
"""Points that tell a slope at least, if not a line."""
LEAST_FREEDOM = 0.1
"""Of a block with all the leverage: its residual tells next to nothing."""
MODEL_ERROR = 0.5
"""Of what is left: in trials the slope told it within a factor of two."""
CERTAIN = 3.0
"""Errors of the energy that what is left may be uncertain by, if it is to be known."""
MAX_NOISE = 1.6e-3
"""In hartree: what it may be uncertain by anyway, as by a third of itself."""
MIN_CORRELATION = 0.9
MIN_RATIO = 1.2
"""Of the largest to the least variance: a line needs length."""
MIN_LINES = 2
"""Of the runs of a sweep that are to share a slope: one alone has nobody to agree with."""


class Point(NamedTuple):
    """A point of a line: variance (hartree²) and energy (hartree), each with its error."""

    x: float
    dx: float
    y: float
    dy: float


class Extrapolation(NamedTuple):
    """E₀ with its standard error, in hartree, or the reason why E₀ is unknown."""

    energy: float | None
    error: float | None
    slope: float | None  # k, hartree⁻¹
    why: str  # empty where there is one
    slope_error: float = math.nan
    end: Point | None = None
    shared_error: float = 0.0  # the part of the error that runs of one slope have together
    left: float | None = None  # k σ², hartree: what longer training would gain; None: not known
    left_error: float | None = None  # with that of the assumption
    left_noise: float = math.inf  # without
    guess: float = 0.0  # k σ², hartree, however uncertain


class _Slope(NamedTuple):
    """A slope of the energy against the variance, over blocks of a training."""

    k: float  # hartree⁻¹
    error: float
    x: np.ndarray  # medians of the variance, block by block
    y: np.ndarray  # means of the energy


def extrapolate(energies: np.ndarray, variances: np.ndarray, end: Point) -> Extrapolation:
    """E₀, and what is left to gain, from a training's energies and variances, by step.

    Args:
        energies, variances: of the training.
        end: median variance and energy of the evaluation.
    """
    fit = _fit(energies, variances)
    if fit is None:
        return _refused(f"a training of {len(energies)} steps is too short for a line", end)
    left, noise = max(fit.k, 0.0) * end.x, math.hypot(end.x * fit.error, fit.k * end.dx)
    found = Extrapolation(None, None, fit.k, "", fit.error, end, left_noise=noise, guess=left)
    if noise <= max(MAX_NOISE, CERTAIN * end.dy, left / CERTAIN):
        error = math.hypot(noise, MODEL_ERROR * left)
        found = found._replace(left=left, left_error=error)
    if why := _why_no_line(fit, len(energies)):
        return found._replace(why=why)
    return found._replace(energy=end.y - left, error=math.hypot(end.dy, noise))


def _why_no_line(fit: _Slope, n_steps: int) -> str:
    """Why there is no E₀, which takes a clearer line than what is left; empty if there is one."""
    if len(fit.x) < N_BLOCKS:
        return f"a training of {n_steps} steps is too short for a line"
    ratio = float(fit.x.max() / max(fit.x.min(), np.finfo(float).tiny))
    if ratio < MIN_RATIO:
        return f"the variance fell by a factor of {ratio:.2f} only"
    correlation = float(np.corrcoef(fit.x, fit.y)[0, 1]) if np.ptp(fit.y) > 0.0 else 0.0
    if not correlation > MIN_CORRELATION:
        return f"energy and variance are correlated by {correlation:.2f} only"
    return ""


def pool_left(found: Sequence[Extrapolation]) -> tuple[float, float] | None:
    """The mean of what several runs have left, and its error; None where one is not known.

    Runs of one job have the error of the model in common, so that it is not averaged away.
    """
    known = [(x.left, x.left_error) for x in found if x.left is not None]
    if len(known) < len(found) or not known:
        return None
    lefts, errors = np.array(known, float).T
    return float(lefts.mean()), float(errors.mean())


def pool_extrapolations(found: Sequence[Extrapolation]) -> Extrapolation:
    """The mean of several runs', weighed by their errors; where one has none, its reason."""
    known = [(one.energy, one.error, one.slope, one.shared_error) for one in found if not one.why]
    if len(known) < len(found):
        return _refused(next(one.why for one in found if one.why))
    energies, errors, slopes, shared = np.array(known, float).T
    own = np.sqrt(np.maximum(errors**2 - shared**2, 0.0))
    weights = 1.0 / np.maximum(own, np.spacing(np.abs(energies))) ** 2
    energy, slope, common = (
        float(np.average(x, weights=weights)) for x in (energies, slopes, shared)
    )
    error = math.hypot(float(weights.sum()) ** -0.5, common)
    return Extrapolation(energy, error, slope, "", shared_error=common)


def share_slope(found: Sequence[Extrapolation]) -> list[Extrapolation]:
    """Return the extrapolations of the runs of one sweep, with one slope for all.

    The slope is the mean over runs with a line, weighted by errors; the error grows where the
    slopes disagree. Each run gets E₀ = E − k σ² of its evaluation, also a run without a line, so
    that all energies along a curve are extrapolated alike.
    """
    known = [(one.slope, one.slope_error) for one in found if not one.why]
    if len(known) < MIN_LINES:
        why = f"{len(known)} of {len(found)} runs of the sweep have a line, {MIN_LINES} are needed"
        return [_refused(why, one.end) for one in found]
    slopes, errors = np.array(known, float).T
    weights = 1.0 / errors**2
    slope = float(np.average(slopes, weights=weights))
    chi2 = float(np.sum(weights * (slopes - slope) ** 2)) / (len(known) - 1)
    slope_error = (max(chi2, 1.0) / float(weights.sum())) ** 0.5
    return [_with_slope(one, slope, slope_error) for one in found]


def _with_slope(one: Extrapolation, slope: float, slope_error: float) -> Extrapolation:
    """E₀ of a line of this slope through the evaluation."""
    if one.end is None:
        return one
    x, dx, y, dy = one.end
    shared = x * slope_error
    noise = math.hypot(slope * dx, shared)
    left = max(slope, 0.0) * x
    found = Extrapolation(y - slope * x, math.hypot(dy, noise), slope, "", slope_error, one.end)
    error = math.hypot(noise, MODEL_ERROR * left)
    return found._replace(shared_error=shared, left=left, left_error=error, left_noise=noise)


def _fit(energies: np.ndarray, variances: np.ndarray) -> _Slope | None:
    """The least-squares slope over the last 80 % of a training; None of one too short.

    Medians of the variance, for its mean is that of a few walkers near nodes. The error of the
    slope is from the scatter of the blocks about the line, each weighed by its leverage (HC3), for
    early blocks scatter more than late ones.
    """
    n_fitted = int(FITTED * len(energies))
    n_blocks = min(N_BLOCKS, n_fitted // MIN_BLOCK)
    if n_blocks < MIN_BLOCKS:
        return None
    length = n_fitted // n_blocks
    blocks = [series[-n_blocks * length :].reshape(-1, length) for series in (variances, energies)]
    x, y = np.median(blocks[0], axis=1), blocks[1].mean(axis=1)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0.0:
        return None
    u = x - x.mean()
    square = float(np.sum(u * u))
    k = float(np.sum(u * y)) / square
    left = y - y.mean() - k * u
    leverage = 1.0 / n_blocks + u * u / square
    scatter = left / np.maximum(1.0 - leverage, LEAST_FREEDOM)
    rounding = float(np.spacing(np.abs(y).max()))  # of what lies on a line to the last digit
    error = max(float(np.sum((u * scatter) ** 2)) ** 0.5 / square, rounding / square**0.5)
    return _Slope(k, error, x, y)


def _refused(why: str, end: Point | None = None) -> Extrapolation:
    return Extrapolation(None, None, None, why, end=end)
