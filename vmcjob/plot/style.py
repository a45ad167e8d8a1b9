"""How our pictures look: the widths of journals, colours that all eyes tell apart, plain axes."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

FORMATS: Final = ("png", "svg", "pdf")
COLUMN: Final = 3.375  # inches, of one column of a journal of the American Physical Society
PAGE: Final = 7.0  # of both
DPI: Final = 300
# Okabe and Ito (2008), dark ones first, without yellow, which is faint on white.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Beyond the colours there are, lines differ by these as well.
DASHES: Final = ("-", "--", "-.", ":")
GREY: Final = "#777777"
PLAIN: Final = (1e-4, 1e5)
"""Between these, numbers on logarithmic axes are written as such."""
MAX_POINTS: Final = 2000
"""Of a line: a vector graphic of a run of 1e5 steps stays small, and shows the same."""

STYLE: Final[Any] = {  # matplotlib's own type of its settings is a list of all their names
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.1,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.formatter.useoffset": False,
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "mathtext.default": "regular",
}


@contextmanager
def our_style() -> Iterator[None]:
    """Draw in here; what a user's matplotlibrc says does not count."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches; without pyplot, hence without a display and without a memory."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def line(number: int) -> dict[str, Any]:
    """Colour and dashes of one line among many."""
    dashes = DASHES[number // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": dashes}


def place_legend(axes: Axes) -> None:
    """In one line above the axes, where no data is."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 0.98),
        ncols=4,
        borderpad=0.0,
        borderaxespad=0.0,
        columnspacing=1.2,
        handlelength=1.6,
    )


def use_log_axis(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Logarithmic; with plain numbers where these are short, and few between the decades."""
    if which == "x":
        axes.set_xscale("log")
        axis, (low, high) = axes.xaxis, axes.get_xlim()
    else:
        _make_room_for_one_value(axes)
        axes.set_yscale("log")
        axis, (low, high) = axes.yaxis, axes.get_ylim()
    is_plain = low >= PLAIN[0] and high < PLAIN[1]
    if is_plain:
        axis.set_major_formatter(FuncFormatter(_as_number))
    if high > 20.0 * low > 0.0:
        axis.set_minor_formatter(NullFormatter())
    elif is_plain:
        axis.set_minor_formatter(FuncFormatter(_as_number if high < 4.0 * low else _as_half))


def _make_room_for_one_value(axes: Axes) -> None:
    """A single value above zero gets a scale; matplotlib would give it none."""
    low, high = axes.dataLim.intervaly
    if 0.0 < low <= high < 1.001 * low:
        axes.set_ylim(0.4 * low, 2.5 * high)


def _as_number(x: float, _: object) -> str:
    return f"{x:g}"


def _as_half(x: float, _: object) -> str:
    """2 and 5 of a decade: with all of them, numbers would stand in each other's way."""
    return f"{x:g}" if f"{x:e}"[0] in "25" else ""


def draw_series(axes: Axes, steps: np.ndarray, values: np.ndarray, **look: Any) -> None:
    """A line, and a dot where a value has no neighbour that a line could go to."""
    axes.plot(*thinned(steps, values), **look)
    good = np.concatenate([[False], np.isfinite(values), [False]])
    alone = good[1:-1] & ~good[:-2] & ~good[2:]
    if alone.any():
        dots = thinned(steps[alone], values[alone])
        axes.plot(*dots, marker="o", markersize=2.0, linestyle="", color=look["color"])


def thinned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A line of at most MAX_POINTS points: of each stretch its lowest and its highest one."""
    if values.size <= MAX_POINTS:
        return steps, values
    edges = np.linspace(0, values.size, MAX_POINTS // 2 + 1).astype(int)
    kept = []
    for first, last in pairwise(edges):
        part = np.where(np.isfinite(values[first:last]), values[first:last], values[first])
        kept += sorted({first + int(np.argmin(part)), first + int(np.argmax(part))})
    return steps[kept], values[kept]


def say_empty(axes: Axes, why: str) -> None:
    """Instead of data, a word in the middle; an axis below may share its steps with others."""
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=GREY)
    axes.tick_params(bottom=False, labelbottom=False, which="both")
    axes.set_yticks([])


def to_svg(figure: Figure) -> str:
    """A figure as the text of an SVG picture."""
    text = StringIO()
    with our_style():
        mpl.rcParams["svg.hashsalt"] = "vmcjob"
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def render(figure: Figure, path: Path) -> bytes:
    """What a figure is as a file; the end of its name says in which format, one of FORMATS.

    Nothing in it tells when it was written: the same run gives the same bytes.
    """
    kind, content = path.suffix.lstrip(".").lower(), BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with our_style():
        mpl.rcParams["svg.hashsalt"] = "vmcjob"
        figure.savefig(content, format=kind, dpi=DPI, metadata=dates.get(kind))
    return content.getvalue()
