"""The path of a relaxation: energy and largest force at each geometry."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vmcjob.plot.style import COLOURS, COLUMN, GREY, line, new_figure, our_style, use_log_axis


class PathPoint(NamedTuple):
    """The results at one geometry, each with its standard error."""

    energy: float  # hartree
    energy_error: float
    force: float  # hartree/bohr, the largest component
    force_error: float


def draw_path(points: Sequence[PathPoint], force_tolerance: float, caption: str) -> Figure:
    """Energies above and largest forces below, over the number of the geometry.

    Args:
        points: at least one, the first geometry first.
        force_tolerance: hartree/bohr, drawn as a line.
        caption: above both panels.
    """
    with our_style():
        figure = new_figure(COLUMN, 3.6)
        above, below = figure.subplots(2, 1, sharex=True)
        _draw(above, [(point.energy, point.energy_error) for point in points], 0)
        _draw(below, [(point.force, point.force_error) for point in points], 1)
        tolerance = f"force_tolerance = {force_tolerance:g}"
        below.axhline(force_tolerance, color=GREY, linestyle="--", linewidth=0.8, label=tolerance)
        use_log_axis(below)  # an error bar down to zero or below ends at the lower edge
        above.set_title(caption, loc="left")
        above.set_ylabel("energy (hartree)")
        below.set_ylabel("largest force (hartree/bohr)")
        below.set_xlabel("geometry")
        below.set_xlim(-0.5, len(points) - 0.5)
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
        below.legend(loc="upper right")
    return figure


def _draw(axes: Axes, values: Sequence[tuple[float, float]], number: int) -> None:
    """Draw values with error bars, and a faint line between neighbours."""
    means, errors = zip(*values, strict=True)
    places = range(len(values))
    axes.plot(places, means, **line(number), alpha=0.4)
    axes.errorbar(
        places, means, yerr=errors, fmt="o", color=COLOURS[number], markersize=3.0, elinewidth=0.8
    )
