"""What a run has measured beside its energy: histograms as curves, numbers as text."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vmcjob.observables import Quantity
from vmcjob.plot.style import COLOURS, PAGE, new_figure, our_style

CURVE_HEIGHT, TEXT_HEIGHT = 1.7, 0.14  # inches, of a row of curves and of a line of text
MARGIN = 0.06  # of the page, left of a line of text
LINE_LENGTH = 58  # letters of a line of text that fit half of the page
MIN_SHOWN = 2e-3
"""Of the largest value: an axis ends where a curve stays below."""


def draw_observables(
    label: str, quantities: Mapping[str, Quantity], numbers: Sequence[str]
) -> Figure:
    """A panel for each histogram, and the numbers in words below, in two columns if they fit.

    Args:
        label: of the run.
        quantities: by name, those without bins left out.
        numbers: the others, a line each.
    """
    curves = [one for one in quantities.values() if is_curve(one)]
    n_columns = 2 if all(len(line) <= LINE_LENGTH for line in numbers) else 1
    n_rows, n_lines = -(-len(curves) // 2), -(-len(numbers) // n_columns)
    words_height = TEXT_HEIGHT * n_lines + 0.1 if numbers else 0.0
    height = 0.3 + CURVE_HEIGHT * n_rows + words_height
    with our_style():
        figure = new_figure(PAGE, height)
        figure.suptitle(label, fontsize=9.0)
        # Panels leave the words their room.
        free = 0.0, words_height / height, 1.0, 1.0 - words_height / height
        figure.set_layout_engine("constrained", rect=free)
        panels = list(figure.subplots(n_rows, 2, squeeze=False).flat) if curves else []
        for axes, quantity in zip(panels, curves, strict=False):
            draw_histogram(axes, quantity)
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
        for column, lines in enumerate((numbers[:n_lines], numbers[n_lines:])):
            place = MARGIN + 0.5 * column, words_height / height
            figure.text(*place, "\n".join(lines), va="top", fontsize=7.0)
    return figure


def is_curve(quantity: Quantity) -> bool:
    """Whether it has bins along one axis."""
    return len(quantity.axes) == 1 and bool(quantity.axes[0].coordinates)


def draw_histogram(axes: Axes, quantity: Quantity) -> None:
    """Steps with their error bars; what is counted, in electrons per bohr, whatever the bins."""
    (axis,) = quantity.axes
    edges, bins = _finite_bins(axis.coordinates, axis.length)
    values, errors = quantity.means()[bins], quantity.errors()[bins]
    units = quantity.units
    if units == "1":
        values, errors = values / np.diff(edges), errors / np.diff(edges)
        units = f"1/{axis.units}"
    errors = np.where(np.isfinite(errors), errors, 0.0)
    axes.stairs(values, edges, color=COLOURS[0])
    low, high = (np.append(x, x[-1]) for x in (values - errors, values + errors))
    axes.fill_between(edges, low, high, step="post", color=COLOURS[4], alpha=0.6, linewidth=0.0)
    shown = np.flatnonzero(values > MIN_SHOWN * np.max(values, initial=0.0))
    if shown.size:
        axes.set_xlim(float(edges[shown[0]]), float(edges[shown[-1] + 1]))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(f"{axis.name} ({axis.units})")
    axes.set_ylabel(units.replace("^-3", "⁻³").replace("1/bohr", "bohr⁻¹"))
    axes.set_title(quantity.long_name, loc="left")


def _finite_bins(coordinates: Sequence[float], n_bins: int) -> tuple[np.ndarray, slice]:
    """Edges of the bins that have two, and which these are.

    The first bin of lengths begins at 0, that of places is endless, as the last one mostly is.
    """
    is_length = coordinates[0] > 0.0
    edges = np.array((0.0, *coordinates) if is_length else coordinates)
    first = 0 if is_length else 1
    return edges, slice(first, min(n_bins, first + len(edges) - 1))
