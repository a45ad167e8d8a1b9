"""A potential-energy curve: energies along one coordinate of a sweep, and the fitted minimum."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vmcjob.plot.style import COLOURS, COLUMN, GREY, line, new_figure, our_style
from vmcjob.results.curve import Fit, Value

N_DRAWN = 300  # points of a line


class CurvePoint(NamedTuple):
    """One row of the table: where, its energy and error in hartree."""

    at: float
    energy: float
    error: float
    is_converged: bool = True
    reference: float | None = None


def draw_curve(
    points: Sequence[CurvePoint],
    coordinate: str,
    fit: Fit | None = None,
    limit: Value | None = None,
    caption: str = "",
) -> Figure:
    """Energies with error bars; below, what the fit leaves, which no eye sees in the curve.

    Args:
        points: at least one.
        coordinate: name and unit of the axis.
        fit: of the minimum, if there is one.
        limit: the energy of the fragments, hartree.
        caption: the constants in words.
    """
    with our_style():
        n_rows = 1 if fit is None else 2
        figure = new_figure(COLUMN, 2.6 if fit is None else 3.6)
        ratios = [1.0] if fit is None else [3.0, 1.0]
        panels = figure.subplots(n_rows, 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        axes = panels[0]
        _draw_points(axes, points)
        if fit is not None:
            x = np.linspace(fit.first, fit.last, N_DRAWN)
            axes.plot(x, fit(x), **line(0), label="fit", zorder=1)
            _draw_residuals(panels[1], points, fit)
        if limit is not None:
            axes.axhline(limit.value, color=GREY, linestyle="--", linewidth=0.8, label="fragments")
        axes.set_ylabel("energy (hartree)")
        panels[-1].set_xlabel(coordinate)
        axes.legend(loc="lower right")
        if caption:
            axes.set_title(caption, loc="left", fontsize=7.0)
    return figure


def draw_curves(
    curves: Mapping[str, tuple[Sequence[CurvePoint], Fit | None]],
    coordinate: str,
    limit: Value | None = None,
) -> Figure:
    """Several curves in one picture; below, by how much the others differ from the first.

    Args:
        curves: points and fit of each, by name.
        coordinate: name and unit of the axis.
        limit: the energy of the fragments, hartree.
    """
    with our_style():
        figure = new_figure(COLUMN, 3.6)
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[3.0, 1.0])
        (_, (first, _)), *_ = curves.items()
        energy_at = {point.at: point for point in first}
        below.axhline(0.0, color=GREY, linewidth=0.6)
        for place, (name, (points, fit)) in enumerate(curves.items()):
            size = max(2.0, 5.0 - 1.5 * place)  # what lies below is seen
            _draw_points(axes, points, COLOURS[place], name, size)
            if fit is not None:
                x = np.linspace(fit.first, fit.last, N_DRAWN)
                axes.plot(x, fit(x), **line(place), zorder=1)
            pairs = [(point, energy_at[point.at]) for point in points if point.at in energy_at]
            if place:
                _draw_differences(below, pairs, COLOURS[place])
        if limit is not None:
            axes.axhline(limit.value, color=GREY, linestyle="--", linewidth=0.8, label="fragments")
        axes.set_ylabel("energy (hartree)")
        below.set_ylabel("difference (mHa)")
        below.set_xlabel(coordinate)
        axes.legend(loc="lower right")
    return figure


def _draw_differences(
    axes: Axes, pairs: Sequence[tuple[CurvePoint, CurvePoint]], colour: str
) -> None:
    """Draw the difference of one curve from another at their common points."""
    axes.errorbar(
        [point.at for point, _ in pairs],
        [1e3 * (point.energy - other.energy) for point, other in pairs],
        yerr=[1e3 * math.hypot(point.error, other.error) for point, other in pairs],
        fmt="o",
        color=colour,
        markersize=3.0,
        elinewidth=0.8,
    )


def _draw_points(
    axes: Axes,
    points: Sequence[CurvePoint],
    known_colour: str = COLOURS[1],
    name: str = "VMC",
    size: float = 3.0,
) -> None:
    for is_converged, colour, label in ((True, known_colour, name), (False, GREY, "not converged")):
        chosen = [point for point in points if point.is_converged == is_converged]
        if chosen:
            axes.errorbar(
                [point.at for point in chosen],
                [point.energy for point in chosen],
                yerr=[point.error for point in chosen],
                fmt="o",
                color=colour,
                markersize=size,
                elinewidth=0.8,
                label=label,
            )
    known = [(point.at, point.reference) for point in points if point.reference is not None]
    if known:
        axes.plot(
            *np.array(known).T,
            linestyle="none",
            marker="_",
            color="black",
            label="reference",
        )


def _draw_residuals(axes: Axes, points: Sequence[CurvePoint], fit: Fit) -> None:
    inside = [point for point in points if fit.first <= point.at <= fit.last]
    at = np.array([point.at for point in inside])
    left = 1e3 * (np.array([point.energy for point in inside]) - fit(at))
    axes.axhline(0.0, color=GREY, linewidth=0.6)
    axes.errorbar(
        at,
        left,
        yerr=[1e3 * point.error for point in inside],
        fmt="o",
        color=COLOURS[1],
        markersize=3.0,
        elinewidth=0.8,
    )
    axes.set_ylabel("E − fit (mHa)")
