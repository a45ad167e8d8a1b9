"""The panels of pictures of a run; a panel without data says so."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from vmcjob.plot.series import RunSeries
from vmcjob.plot.style import (
    COLOURS,
    GREY,
    draw_series,
    line,
    place_legend,
    say_empty,
    use_log_axis,
)
from vmcjob.stats import blocking_curve, estimate, normalized_autocorrelation

Series = Float[np.ndarray, " step"]

WINDOWS = 50
"""Smoothing takes the mean over one part of so many of a series."""
SHOWN = (0.01, 0.995)
"""Quantiles of the energies that an axis shows: a few wild steps do not flatten all others."""
MIN_SPREAD = 0.01
"""In hartree, of energies that are all the same."""
BLOCKS = 24
"""Of a training, whose means are compared with the reference."""
MIN_BLOCK = 2
CHEMICAL_ACCURACY = 1.5936
"""One kcal/mol in millihartree."""
MIN_SAMPLES = 8
"""Below, neither blocking nor an autocorrelation says anything."""
SHOWN_TIMES = 12.0
"""Autocorrelation times that the autocorrelation is drawn for."""


def window_of(values: Series) -> int:
    """Steps that a series of some length is smoothed over."""
    return max(1, values.size // WINDOWS)


def smoothed(values: Series, width: int | None = None) -> Series:
    """Means over a window around each step, shorter at the ends; NaN counts for nothing."""
    width = width or window_of(values)
    good = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(good, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(good)])
    at = np.arange(values.size)
    first, last = np.maximum(0, at - width // 2), np.minimum(values.size, at + width // 2 + 1)
    n = counts[last] - counts[first]
    return np.where(n > 0, (sums[last] - sums[first]) / np.maximum(n, 1), np.nan)


def log_smoothed(values: Series, width: int | None = None) -> Series:
    """Geometric means over the same windows, which one wild step hardly moves."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.log(values)
    return np.exp(smoothed(np.where(np.isfinite(logarithm), logarithm, np.nan), width))


def draw_energies(axes: Axes, run: RunSeries) -> None:
    """Training energies, their smoothed line, and the levels to compare with."""
    energies = run.train["energy"]
    axes.set_ylabel("energy (hartree)")
    good = energies[np.isfinite(energies)]
    if not good.size:
        say_empty(axes, "no training yet")
        return
    steps = run.train["step"]
    draw_series(axes, steps, energies, color=COLOURS[4], linewidth=0.5, label="steps")
    draw_series(axes, steps, smoothed(energies), **line(0), label="smoothed")
    low, high = np.quantile(good, SHOWN)
    spread = high - low or MIN_SPREAD
    levels = {"Hartree–Fock": run.hartree_fock, "reference": run.reference}
    for (name, level), colour in zip(levels.items(), (COLOURS[1], GREY), strict=True):
        if level is not None:
            axes.axhline(level, color=colour, linestyle="--", linewidth=0.8, label=name)
            is_near = low - 3.0 * spread < level < high + 3.0 * spread
            low, high = (min(low, level), max(high, level)) if is_near else (low, high)
    room = 0.08 * (high - low) or MIN_SPREAD
    axes.set_ylim(low - room, high + room)
    axes.margins(x=0.02)
    place_legend(axes)


def draw_distance(axes: Axes, run: RunSeries) -> None:
    """How far the smoothed energy is from the reference, on a logarithmic axis."""
    axes.set_ylabel("|E − ref.| (mHa)")
    energies = run.train["energy"]
    if run.reference is None:
        say_empty(axes, "no reference energy\n(system.reference in the spec)")
    elif not np.isfinite(energies).any():
        say_empty(axes, "no training yet")
    else:
        _draw_block_means(axes, run.train["step"], 1e3 * (energies - run.reference))
        axes.axhline(CHEMICAL_ACCURACY, color=GREY, linestyle=":", label="1 kcal/mol")
        use_log_axis(axes)
        place_legend(axes)


def _draw_block_means(axes: Axes, steps: Series, away: Series) -> None:
    """Means over blocks with the error that the scatter in each gives; hollow below zero."""
    good = np.isfinite(away)
    n_blocks = max(1, min(BLOCKS, int(good.sum()) // MIN_BLOCK))
    blocks = np.array_split(away[good], n_blocks)
    at = [float(part.mean()) for part in np.array_split(steps[good], n_blocks)]
    means = np.array([part.mean() for part in blocks])
    errors = np.array(
        [part.std(ddof=1) / part.size**0.5 if part.size > 1 else 0 for part in blocks]
    )
    for chosen, face, label in (
        (means >= 0.0, COLOURS[0], "above the reference"),
        (means < 0.0, "white", "below it"),
    ):
        if chosen.any():
            axes.errorbar(
                np.array(at)[chosen],
                np.abs(means[chosen]),
                yerr=errors[chosen],
                fmt="o",
                color=COLOURS[0],
                markerfacecolor=face,
                markersize=2.8,
                elinewidth=0.7,
                label=label,
            )


def draw_variance(axes: Axes, run: RunSeries) -> None:
    """The variance of the local energy, which an exact wave function would not have."""
    variance = run.train["variance"]
    axes.set_ylabel("variance (hartree²)")
    if not (np.isfinite(variance) & (variance > 0.0)).any():
        say_empty(axes, "no training yet" if not variance.size else "no variance above 0")
        return
    draw_series(axes, run.train["step"], variance, color=COLOURS[4], linewidth=0.5)
    draw_series(axes, run.train["step"], log_smoothed(variance), **line(0))
    use_log_axis(axes)


def draw_acceptance(axes: Axes, run: RunSeries) -> None:
    """The part of the Metropolis moves that is accepted, and how far they go."""
    axes.set_ylabel("acceptance")
    if not np.isfinite(run.train["acceptance"]).any():
        say_empty(axes, "no training yet")
        return
    steps = run.train["step"]
    draw_series(axes, steps, smoothed(run.train["acceptance"]), **line(0))
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.label.set_color(COLOURS[0])
    other = axes.twinx()
    other.spines["right"].set_visible(True)
    draw_series(other, steps, smoothed(run.train["width"]), **line(1))
    unit = "of the distance" if run.is_width_relative else "bohr"
    other.set_ylabel(f"width ({unit})", color=COLOURS[1])
    other.set_ylim(0.0, 1.4 * float(np.nanmax(run.train["width"])) or 1.0)


def draw_histogram(axes: Axes, run: RunSeries) -> None:
    """How evaluation energies are distributed, with their mean and its error bar."""
    axes.set_xlabel("evaluation energy − mean (mHa)")
    axes.set_ylabel("steps")
    good = run.evaluate["energy"][np.isfinite(run.evaluate["energy"])]
    if good.size < MIN_SAMPLES:
        say_empty(axes, "too few evaluation steps")
        return
    found = estimate(good)
    away = 1e3 * (good - found.mean)
    axes.hist(away, bins=min(60, max(8, round(good.size**0.5))), color=COLOURS[4])
    axes.axvspan(-1e3 * found.error, 1e3 * found.error, color=COLOURS[1], alpha=0.5, linewidth=0)
    axes.axvline(0.0, color=COLOURS[1], label="mean and its error")
    place_legend(axes)


def draw_blocking(axes: Axes, run: RunSeries) -> None:
    """The error of the mean by length of block: where it is level, blocks are independent."""
    axes.set_xlabel("block length (steps)")
    axes.set_ylabel("error (mHa)")
    good = run.evaluate["energy"][np.isfinite(run.evaluate["energy"])]
    if good.size < MIN_SAMPLES or np.ptp(good) == 0.0:
        say_empty(axes, "too few evaluation steps" if good.size < MIN_SAMPLES else "constant")
        return
    lengths, errors, uncertainties = blocking_curve(good)
    axes.errorbar(
        lengths, 1e3 * errors, yerr=1e3 * uncertainties, fmt="o", markersize=2.5, elinewidth=0.8
    )
    axes.axhline(1e3 * estimate(good).error, color=COLOURS[1], label="as quoted")
    use_log_axis(axes, "x")
    axes.set_ylim(bottom=0.0)
    place_legend(axes)


def draw_autocorrelation(axes: Axes, run: RunSeries) -> None:
    """The autocorrelation of evaluation energies, until it is gone."""
    axes.set_xlabel("steps apart")
    axes.set_ylabel("autocorrelation")
    good = run.evaluate["energy"][np.isfinite(run.evaluate["energy"])]
    if good.size < MIN_SAMPLES or np.ptp(good) == 0.0:
        say_empty(axes, "too few evaluation steps" if good.size < MIN_SAMPLES else "constant")
        return
    tau = estimate(good).tau
    n_shown = min(good.size // 2, max(10, round(SHOWN_TIMES * tau)))
    axes.axhline(0.0, color=GREY, linewidth=0.6)
    axes.plot(normalized_autocorrelation(good)[:n_shown], marker="o", markersize=2.0)
    axes.text(0.97, 0.9, f"τ = {tau:.1f} steps", ha="right", va="top", transform=axes.transAxes)
