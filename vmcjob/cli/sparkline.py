"""A curve in one line of text, and the energies of a run as such lines."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from vmcjob.cli.text import count, format_energy

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir

LEVELS = "▁▂▃▄▅▆▇█"
MISSING = " "
WIDTH = 40  # letters of a series
SERIES = {"train": "training", "evaluate": "evaluation"}
NO_ENERGIES = {"energies": "none: the run has no results yet"}


def draw_sparkline(values: Sequence[float], width: int) -> str:
    """The values from left to right in at most `width` letters, the lowest value at the bottom.

    A letter stands for the median of its part of the series, so that single outliers do not decide
    the scale. A part without a finite value is blank.
    """
    parts = [_median(part) for part in _split(values, width)]
    known = [value for value in parts if math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        LEVELS[round((value - low) * scale)] if math.isfinite(value) else MISSING for value in parts
    )


def energy_facts(run: "RunDir") -> dict[str, str]:
    """A line for each series of energies of a run, in hartree: a curve, its first and last part.

    StoreError if the results cannot be read; a line says so if there are none.
    """
    from vmcjob.store import RunStore, peek

    if not peek.exists(run.store_path):
        return NO_ENERGIES
    store, facts = RunStore.open(run.store_path), {}
    for phase, name in SERIES.items():
        values = store.series(phase, ["energy"])["energy"].tolist()  # pyright: ignore[reportArgumentType]
        parts = [_median(part) for part in _split(values, WIDTH)]
        if parts:
            ends = f"{format_energy(parts[0], None)} to {format_energy(parts[-1], None)}"
            steps = count(len(values), "step")
            facts[name] = f"{draw_sparkline(values, WIDTH)}  {ends} hartree in {steps}"
    return facts or NO_ENERGIES


def _split(values: Sequence[float], width: int) -> list[Sequence[float]]:
    """The values in parts of about equal length, one for each letter."""
    n_parts = min(width, len(values))
    edges = [len(values) * n // n_parts for n in range(n_parts + 1)] if n_parts else []
    return [values[first:last] for first, last in pairwise(edges)]


def _median(values: Sequence[float]) -> float:
    """The middle of the finite values; NaN if there are none."""
    finite = sorted(value for value in values if math.isfinite(value))
    return finite[len(finite) // 2] if finite else math.nan
