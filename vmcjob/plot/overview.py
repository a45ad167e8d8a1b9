"""One run on a page, and several runs in one picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vmcjob.plot.panels import (
    draw_acceptance,
    draw_autocorrelation,
    draw_blocking,
    draw_distance,
    draw_energies,
    draw_histogram,
    draw_variance,
    log_smoothed,
    smoothed,
    window_of,
)
from vmcjob.plot.series import RunSeries
from vmcjob.plot.style import (
    COLUMN,
    PAGE,
    draw_series,
    line,
    new_figure,
    our_style,
    say_empty,
    use_log_axis,
)

MAX_LEGEND = 14
"""Names of lines that find room below a picture."""
MAX_HALF = 22
"""Letters of a name of which two find room side by side."""


def draw_overview(run: RunSeries) -> Figure:
    """Training on the left, evaluation on the right, one panel for each question."""
    with our_style():
        figure = new_figure(PAGE, 6.4)
        panels = figure.subplots(4, 2)
        figure.suptitle(run.label, fontsize=9.0)
        left, right = panels[:, 0], panels[:, 1]
        for axes in left[1:]:  # before anything is drawn, for a second axis to share it as well
            axes.sharex(left[0])
        for draw, axes in zip(
            (draw_energies, draw_distance, draw_variance, draw_acceptance), left, strict=True
        ):
            draw(axes, run)
        for axes in left[:-1]:
            axes.tick_params(labelbottom=False)
        left[-1].set_xlabel("training step")
        draw_evaluation(right[0], run)
        draw_histogram(right[1], run)
        draw_blocking(right[2], run)
        draw_autocorrelation(right[3], run)
        figure.align_ylabels(list(left))
        figure.align_ylabels(list(right))
    return figure


def draw_evaluation(axes: Axes, run: RunSeries) -> None:
    """The energies behind the result, step by step."""
    energies = run.evaluate["energy"]
    axes.set_xlabel("evaluation step")
    axes.set_ylabel("energy (hartree)")
    if not np.isfinite(energies).any():
        say_empty(axes, "no evaluation yet")
        return
    steps = run.evaluate["step"]
    draw_series(axes, steps, energies, color=line(4)["color"], linewidth=0.5)
    draw_series(axes, steps, smoothed(energies), **line(0))
    axes.margins(x=0.02)


def draw_comparison(runs: Sequence[RunSeries]) -> Figure:
    """The training of several runs: distance to the reference or energy, and variance."""
    with our_style():
        names = [run.label for run in runs[:MAX_LEGEND]]
        n_columns = 2 if max(map(len, names), default=0) <= MAX_HALF else 1
        figure = new_figure(COLUMN, 3.9 + 0.13 * -(-len(names) // n_columns))
        top, bottom = figure.subplots(2, 1, sharex=True)
        with_reference = all(run.reference is not None for run in runs)
        trained = [run for run in runs if np.isfinite(run.train["energy"]).any()]
        if not trained:
            say_empty(top, "no training yet")
            say_empty(bottom, "no training yet")
            return figure
        width = min(window_of(run.train["energy"]) for run in trained)  # one for all
        for number, run in enumerate(trained):
            steps, energies = run.train["step"], smoothed(run.train["energy"], width)
            if with_reference and run.reference is not None:
                energies = 1e3 * np.abs(energies - run.reference)
            look = line(number) | ({"linewidth": 0.5} if len(runs) > MAX_LEGEND else {})
            label = run.label if number < MAX_LEGEND else None
            draw_series(top, steps, energies, label=label, **look)
            draw_series(bottom, steps, log_smoothed(run.train["variance"], width), **look)
        top.set_ylabel("|E − reference| (mHa)" if with_reference else "energy (hartree)")
        if with_reference:
            use_log_axis(top)
        use_log_axis(bottom)
        bottom.set_ylabel("variance (hartree²)")
        means = f", means over {width} steps" if width > 1 else ""
        bottom.set_xlabel(f"training step{means}")
        title = None if len(runs) <= MAX_LEGEND else f"{MAX_LEGEND} of {len(runs)} runs by name"
        figure.legend(loc="outside lower center", ncols=n_columns, title=title)
        figure.align_ylabels([top, bottom])
    return figure
