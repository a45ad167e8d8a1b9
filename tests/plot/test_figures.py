"""Pictures of any run that there may be: whole, broken, too short, or one of many."""

from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from vmcjob.columns import Axis
from vmcjob.observables import Quantity
from vmcjob.plot import (
    CurvePoint,
    PathPoint,
    RunSeries,
    draw_comparison,
    draw_curve,
    draw_curves,
    draw_observables,
    draw_overview,
    draw_path,
    render,
)
from vmcjob.plot.panels import log_smoothed, smoothed
from vmcjob.plot.style import MAX_POINTS, new_figure, our_style, thinned, use_log_axis
from vmcjob.results.curve import Value, fit
from vmcjob.stats import Estimate

COLUMNS = ("step", "energy", "variance", "acceptance", "width")
RANDOM = np.random.default_rng(5)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its name says."""
    path.write_bytes(render(figure, path))


def series(n: int, energy: float = -1.17) -> dict[str, np.ndarray]:
    """Columns of n steps about an energy, as a training would have them."""
    steps = np.arange(1.0, n + 1)
    falling = energy + 0.1 / steps + 0.01 * RANDOM.standard_normal(n)
    values = (steps, falling, 0.1 / steps**0.5, np.full(n, 0.52), np.full(n, 0.3))
    return dict(zip(COLUMNS, values, strict=True))


def run(n_train: int, n_evaluate: int, **changes: Any) -> RunSeries:
    """A run of such series."""
    return RunSeries("h2-0123456789", series(n_train), series(n_evaluate), **changes)


def texts(figure) -> str:
    """All that is written in a figure."""
    return "\n".join(item.get_text() for item in figure.findobj(lambda x: hasattr(x, "get_text")))


def damaged() -> RunSeries:
    """A run with rows that are not numbers, as before a rollback, and none that is."""
    whole = run(40, 40, reference=-1.174)
    whole.train["energy"][10:20] = np.nan
    whole.train["variance"][:] = np.nan
    whole.evaluate["energy"][::2] = np.inf
    return whole


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        (run(300, 400, reference=-1.174, hartree_fock=-1.13), "reference"),
        (run(300, 400), "no reference energy"),
        (run(300, 0, reference=-1.174), "no evaluation yet"),
        (run(0, 400), "no training yet"),
        (run(1, 1, reference=-1.174), "too few evaluation steps"),
        (run(0, 0), "no training yet"),
        (run(20_000, 20_000, reference=-1.174, hartree_fock=-1.13), "as quoted"),
        (damaged(), "no variance above 0"),
    ],
    ids=["whole", "no reference", "training", "evaluation", "one step", "empty", "long", "damaged"],
)
def test_every_run_has_a_picture(drawn: RunSeries, words: str, tmp_path: Path) -> None:
    """What is missing is said in its panel."""
    figure = draw_overview(drawn)
    save(figure, tmp_path / "run.png")
    assert words in texts(figure)
    assert drawn.label in texts(figure)


def test_a_single_step_is_seen() -> None:
    """A line of one point has no length; a dot has."""
    figure = draw_overview(run(1, 1))
    for axes in (figure.axes[0], figure.axes[1], figure.axes[4]):
        assert any(line.get_marker() == "o" for line in axes.lines)
    low, high = figure.axes[4].get_ylim()
    assert low < 0.1 < high


def test_rows_between_lost_ones_are_seen() -> None:
    """Every second row is not a number: nothing but dots is left."""
    dots = [line for line in draw_overview(damaged()).axes[1].lines if line.get_marker() == "o"]
    assert {np.size(line.get_xdata()) for line in dots} == {20}


def test_an_empty_panel_leaves_the_steps_below_it_alone() -> None:
    """They share an axis, of which the lowest panel shows the numbers."""
    figure = draw_overview(damaged())
    assert len(figure.axes[6].get_xticks()) > 2


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0061, 0.0065, set()),
        (0.002, 0.06, {"0.01"}),
        (0.006, 0.02, {"0.01", "0.02"}),
        (0.9, 4000.0, {"1", "10", "100", "1000"}),
        (1e-9, 1e-3, set()),  # powers of ten are shorter
    ],
)
def test_numbers_on_logarithmic_axes_are_plain(low: float, high: float, expected: set[str]) -> None:
    """Those inside the limits; narrow axes have numbers of all ticks, wide ones of decades."""
    with our_style():
        axes = new_figure(3.0, 2.0).subplots()
        axes.plot([1.0, 2.0], [low, high])
        use_log_axis(axes)
        axes.set_ylim(low, high)
        axes.figure.canvas.draw()
    labels = {
        label.get_text()
        for minor in (False, True)
        for tick, label in zip(
            axes.get_yticks(minor=minor), axes.get_yticklabels(minor=minor), strict=True
        )
        if low <= tick <= high and label.get_text() and "$" not in label.get_text()
    }
    assert labels >= expected
    assert bool(labels) == bool(expected) or high < 2.0 * low


def test_pictures_are_as_wide_as_the_page_of_a_journal(tmp_path: Path) -> None:
    """Both columns, 7 inches at 300 dots."""
    save(draw_overview(run(20, 20)), tmp_path / "run.png")
    header = (tmp_path / "run.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(header[16:20], "big") == 2100


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_run_gives_the_same_bytes(kind: str, tmp_path: Path) -> None:
    """A picture in a repository changes only if the run did."""
    drawn = run(50, 50)
    for name in ("first", "second"):
        save(draw_overview(drawn), tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"first.{kind}").read_bytes() == (tmp_path / f"second.{kind}").read_bytes()


def test_what_a_user_has_set_changes_nothing(tmp_path: Path) -> None:
    """Neither a matplotlibrc nor what another figure has left behind."""
    import matplotlib as mpl

    save(draw_overview(run(50, 50)), tmp_path / "before.svg")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "black"}):
        figure = draw_overview(run(50, 50))
    assert figure.axes[0].get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert figure.axes[0].yaxis.get_label().get_fontsize() == 8.0


def test_eighty_runs_share_a_picture(tmp_path: Path) -> None:
    """No two of the first 28 lines look alike; of 80 names some are shown, and it says so."""
    figure = draw_comparison([run(30, 0, reference=-1.18) for _ in range(80)])
    save(figure, tmp_path / "all.png")
    looks = [(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines]
    assert len(set(looks[:28])) == 28
    assert "14 of 80 runs by name" in texts(figure)
    assert "|E − reference| (mHa)" in texts(figure)
    assert "energy (hartree)" in texts(draw_comparison([run(30, 0), run(30, 0, reference=-1.1)]))


def test_runs_that_have_not_trained_are_told_from_empty_axes() -> None:
    """Nothing is drawn, and it says why."""
    assert "no training yet" in texts(draw_comparison([run(0, 50)]))


def test_a_line_of_many_points_keeps_its_extremes() -> None:
    """A single wild step of 1e5 is still seen."""
    steps, values = np.arange(100_000.0), np.zeros(100_000)
    values[77_777] = 5.0
    values[33_333] = np.nan
    x, y = thinned(steps, values)
    assert x.size <= MAX_POINTS
    assert y.max() == 5.0
    assert (np.diff(x) >= 0).all()
    assert thinned(steps[:10], values[:10])[1].size == 10


def test_smoothing_takes_means_and_skips_what_is_no_number() -> None:
    """At the ends over what there is; of a constant, the constant."""
    values = np.full(1000, 3.0)
    values[500] = np.nan
    np.testing.assert_allclose(smoothed(values), 3.0)
    np.testing.assert_allclose(log_smoothed(values), 3.0)
    assert np.isnan(smoothed(np.full(4, np.nan))).all()
    line = np.arange(500.0)
    np.testing.assert_allclose(smoothed(line)[20:-20], line[20:-20], atol=0.5)


def test_a_curve_shows_its_points_its_fit_and_what_the_fit_leaves(tmp_path: Path) -> None:
    """With the fragments it breaks into, and points that are not converged apart."""
    x = np.linspace(1.0, 3.0, 11)
    energy = -1.0 - 0.17 * (2 * np.exp(-(x - 1.4)) - np.exp(-2 * (x - 1.4)))
    found = fit(x, energy, np.full(11, 1e-4))
    points = [CurvePoint(a, e, 1e-4, a < 2.9, -1.1) for a, e in zip(x, energy, strict=True)]
    figure = draw_curve(points, "distance (bohr)", found, Value(-1.0, 1e-5))
    save(figure, tmp_path / "curve.pdf")
    said = texts(figure)
    for word in ("fit", "fragments", "VMC", "not converged", "distance (bohr)", "E − fit (mHa)"):
        assert word in said
    assert len(draw_curve(points[:3], "R").axes) == 1


def test_curves_side_by_side_differ_by_what_is_drawn_below(tmp_path: Path) -> None:
    """Where both have a point; errors of both together."""
    x = np.linspace(1.0, 3.0, 5)
    first = [CurvePoint(a, -1.0, 3e-4) for a in x]
    second = [CurvePoint(a, -0.998, 4e-4) for a in x[1:]]
    figure = draw_curves({"cold": (first, None), "warm": (second, None)}, "distance (bohr)")
    save(figure, tmp_path / "curves.png")
    said = texts(figure)
    for word in ("cold", "warm", "difference (mHa)", "distance (bohr)"):
        assert word in said
    (differences,) = figure.axes[1].containers
    points, _, (bars,) = cast("ErrorbarContainer", differences).lines
    np.testing.assert_allclose(np.asarray(points.get_ydata(orig=False)), 2.0)
    np.testing.assert_allclose(np.asarray(points.get_xdata(orig=False)), x[1:])
    heights = [segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(heights, 1.0)


def counts(name: str, edges: tuple[float, ...], units: str = "1", ends: int = 1) -> Quantity:
    """A histogram with one electron in each bin."""
    n_bins = len(edges) + ends
    one = Estimate(1.0, 0.1, 0.5, 100.0, 100, True, "")
    return Quantity(units, name, (Axis("x", n_bins, "bohr", edges),), (one,) * n_bins)


def test_histograms_are_drawn_per_bohr_without_their_endless_bins() -> None:
    """Lengths begin at 0; places have an endless bin at both ends; densities have none."""
    found = {
        "lengths": counts("lengths", (0.5, 1.0)),
        "places": counts("places", (-1.0, 0.0, 2.0)),
        "density": counts("density", (0.5, 1.0), "bohr^-3", ends=0),
        "number": Quantity("1", "number", (), (Estimate(2.0, 0.1, 0.5, 9.0, 9, True, ""),)),
    }
    figure = draw_observables("h2-0123456789", found, ["number = 2.0(1)"])
    drawn = {}
    for axes in figure.axes:
        for patch in axes.patches:
            values, edges, _ = cast(StepPatch, patch).get_data()
            drawn[axes.get_title(loc="left")] = values.tolist(), edges.tolist(), axes.get_ylabel()
    assert drawn == {
        "lengths": ([2.0, 2.0], [0.0, 0.5, 1.0], "bohr⁻¹"),
        "places": ([1.0, 0.5], [-1.0, 0.0, 2.0], "bohr⁻¹"),
        "density": ([1.0, 1.0], [0.0, 0.5, 1.0], "bohr⁻³"),
    }
    assert "number = 2.0(1)" in texts(figure)


def test_numbers_alone_have_a_picture_too(tmp_path: Path) -> None:
    save(draw_observables("h2", {}, ["s2 = 0.000(1)"]), tmp_path / "s2.png")


LINES = {
    "short": "dipole moment, with control variates[z] = -2.31(3) e bohr",
    "long": "sum of the forces on all nuclei, by the gradient alone[x] = -0.0003(40) hartree/bohr",
}


@pytest.mark.parametrize("length", LINES)
def test_long_words_leave_the_panels_and_each_other_alone(length: str) -> None:
    """Forces have long names: they overlapped, left the page and made all panels narrow."""
    found = {name: counts(name, (0.5, 1.0)) for name in ("first", "second", "third")}
    figure = draw_observables("h2", found, [LINES[length]] * 3)
    figure.canvas.draw()
    assert [axes.get_position().width > 0.3 for axes in figure.axes if axes.axison] == [True] * 3
    words = [text for text in figure.texts if LINES[length] in text.get_text()]
    assert len(words) == {"short": 2, "long": 1}[length]
    boxes = [text.get_window_extent() for text in words]
    assert all(box.x1 <= figure.bbox.width for box in boxes)
    assert all(box.y0 >= 0.0 for box in boxes)
    panels = [axes.get_tightbbox() for axes in figure.axes if axes.axison]
    boxes += [box for box in panels if box is not None]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_a_path_has_energies_forces_and_the_tolerance(tmp_path: Path) -> None:
    """A force within its error of zero, and a path of one geometry, break logarithmic axes."""
    points = [PathPoint(-1.15, 1e-3, 0.11, 5e-3), PathPoint(-1.17, 2e-3, 3e-4, 6e-4)]
    figure = draw_path(points, 1e-3, "h2-relax")
    expected = [([-1.15, -1.17], [1e-3, 2e-3]), ([0.11, 3e-4], [5e-3, 6e-4])]
    for axes, (means, errors) in zip(figure.axes, expected, strict=True):
        drawn, _, (bars,) = cast("ErrorbarContainer", axes.containers[0]).lines
        np.testing.assert_allclose(np.asarray(drawn.get_ydata(orig=False)), means)
        lengths = [segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]
        np.testing.assert_allclose(lengths, 2.0 * np.array(errors))
    assert "force_tolerance = 0.001" in texts(figure)
    for number in (1, 2):
        save(draw_path(points[:number], 1e-3, "h2-relax"), tmp_path / f"{number}.png")
