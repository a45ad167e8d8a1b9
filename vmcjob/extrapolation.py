"""The energy of a wave function without variance, from how both fell together in training.

An eigenstate has no variance. Near one both are of second order in what is left to learn, and if
what is left always has the same shape, the energy is a straight line of the variance,

    E = E₀ + k σ²,

which ends at E₀ (Kwon, Ceperley and Martin 1993; for networks arXiv:2010.01931 and later). That is
an assumption, and not a bound: E₀ stands beside an energy, never in its place.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vmcjob.stats import standard_errors

N_BLOCKS = 20
"""Of the second half of a training: points of the line."""
MIN_BLOCK = 10
"""Steps of a block."""
MIN_CORRELATION = 0.9
MIN_RATIO = 1.2
"""Of the largest to the least variance: a line needs length."""
MIN_LINES = 2
"""Of the runs of a sweep that are to share a slope: one alone has nobody to agree with."""
MAX_ITERATIONS = 50
MAX_DEVIATION = 2.0
"""Standard deviations of χ² beyond which points scatter more than their errors allow."""


class Point(NamedTuple):
    """Of a line: a variance and an energy, each with its error; hartree², hartree."""

    x: float
    dx: float
    y: float
    dy: float


class Extrapolation(NamedTuple):
    """E₀ with its standard error, in hartree, or why there is none."""

    energy: float | None
    error: float | None
    slope: float | None  # k, hartree⁻¹
    why: str  # empty where there is one
    slope_error: float = math.nan
    end: Point | None = None
    shared_error: float = 0.0  # the part of the error that runs of one slope have together


def extrapolate(energies: np.ndarray, variances: np.ndarray, end: Point) -> Extrapolation:
    """E₀ from the training's energies and variances, by step, and from those of the evaluation."""
    half = len(energies) // 2
    length = half // N_BLOCKS
    if length < MIN_BLOCK:
        return _refused(f"a training of {len(energies)} steps is too short for a line", end)
    blocks = [series[-N_BLOCKS * length :].reshape(-1, length) for series in (variances, energies)]
    x, y = (each.mean(axis=1) for each in blocks)
    ratio = float(x.max() / max(x.min(), np.finfo(float).tiny))
    if ratio < MIN_RATIO:
        return _refused(f"the variance fell by a factor of {ratio:.2f} only", end)
    correlation = float(np.corrcoef(x, y)[0, 1]) if np.ptp(y) > 0.0 else 0.0
    if not correlation > MIN_CORRELATION:
        return _refused(f"energy and variance are correlated by {correlation:.2f} only", end)
    dx, dy = map(_errors, blocks)
    x, dx = np.append(x, end.x), np.append(dx, end.dx)
    y, dy = np.append(y, end.y), np.append(dy, end.dy)
    dy = np.maximum(dy, np.spacing(np.abs(y)))  # what never changes still has its rounding
    line = fit_line(x, dx, y, dy)
    if line.slope <= 0.0:
        return _refused("the energy does not fall with the variance", end)
    if line.offset >= end.y:
        return _refused("the line ends above the energy", end)
    return Extrapolation(line.offset, line.error, line.slope, "", line.slope_error, end)


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
    """The same of runs of one sweep, with one slope for all of them, of those that have a line.

    The slope is the mean of theirs, weighed by its errors, which are wider where they disagree by
    more. What each run then has is E₀ = E − k σ² of its evaluation: so energies along a curve are
    all extrapolated alike, also where a run of its own has no line.
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
    error = math.hypot(dy, slope * dx, shared)
    return Extrapolation(y - slope * x, error, slope, "", slope_error, one.end, shared)


class Line(NamedTuple):
    """y = offset + slope x, and the standard errors of both."""

    offset: float
    slope: float
    error: float
    slope_error: float


def fit_line(x: np.ndarray, dx: np.ndarray, y: np.ndarray, dy: np.ndarray) -> Line:
    """The straight line through points that are uncertain in both directions.

    Least squares weighed by 1 / (dy² + b² dx²), with the points moved onto the line (York, Evensen
    et al. 2004): without that, what is uncertain in x would make the slope too small. Where the
    points scatter more than their errors allow, these are taken to be too small.
    """
    slope = float(np.polyfit(x, y, 1)[0])
    moved = _onto_line(slope, x, dx, y, dy)
    for _ in range(MAX_ITERATIONS):
        before, slope = slope, moved.slope
        moved = _onto_line(slope, x, dx, y, dy)
        if abs(slope - before) <= 1e-12 * abs(slope):
            break
    weight, mean_x, mean_y = moved.weight, moved.mean_x, moved.mean_y
    offset = mean_y - slope * mean_x
    adjusted = mean_x + moved.beta
    centre = float(np.average(adjusted, weights=weight))
    spread = float(np.sum(weight * (adjusted - centre) ** 2))
    square = 1.0 / float(np.sum(weight)) + centre**2 / spread
    dof = len(x) - 2
    chi2 = float(np.sum(weight * (y - offset - slope * x) ** 2)) / dof
    excess = chi2 if chi2 > 1.0 + MAX_DEVIATION * (2.0 / dof) ** 0.5 else 1.0
    return Line(offset, slope, (square * excess) ** 0.5, (excess / spread) ** 0.5)


class _Moved(NamedTuple):
    """Points on a line of some slope, where they probably belong, and the slope that they have."""

    weight: np.ndarray
    mean_x: float
    mean_y: float
    beta: np.ndarray  # x of the moved points, from `mean_x`
    slope: float


def _onto_line(
    slope: float, x: np.ndarray, dx: np.ndarray, y: np.ndarray, dy: np.ndarray
) -> _Moved:
    weight = 1.0 / (dy**2 + slope**2 * dx**2)
    mean_x, mean_y = (float(np.average(values, weights=weight)) for values in (x, y))
    u, v = x - mean_x, y - mean_y
    beta = weight * (u * dy**2 + slope * v * dx**2)
    new = float(np.sum(weight * beta * v) / np.sum(weight * beta * u))
    return _Moved(weight, mean_x, mean_y, beta, new)


def _errors(blocks: np.ndarray) -> np.ndarray:
    """Of the means of blocks, the rows, about a straight line in each."""
    length = blocks.shape[1]
    steps = np.arange(length) - 0.5 * (length - 1)
    slopes = np.sum(blocks * steps, axis=1) / np.sum(steps * steps)
    left = blocks - blocks.mean(axis=1, keepdims=True) - slopes[:, None] * steps
    return standard_errors(left)


def _refused(why: str, end: Point | None = None) -> Extrapolation:
    return Extrapolation(None, None, None, why, end=end)
