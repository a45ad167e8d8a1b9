"""What runs had left to gain, as predicted, against what they were off: a calibration.

    python -m tests.benchmarks.left runs
    python -m tests.benchmarks.left runs more-runs --picture left.png

Reads finished runs whose spec has a `system.reference`; needs no JAX. "Off" is the energy less the
reference, which has to be the exact energy of the state asked for. A run is wrong beyond 1.6 mHa
and 3 error bars. A run that trains on from another is one of its own here.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vmcjob.analysis.energies import table_of
from vmcjob.results.table import Row
from vmcjob.rundir import list_runs
from vmcjob.runs.status import rows
from vmcjob.verdict.judgement import CERTAIN, MAX_LEFT, VERDICTS

SMALL = 0.5e-3
"""In hartree: of runs with less left, nine tenths are to be within `CLOSE`."""
CLOSE = 1e-3


class Run(NamedTuple):
    """One run; energies in hartree."""

    row: Row
    off: float
    left: float  # NaN where it is not known

    @property
    def is_wrong(self) -> bool:
        """Whether its energy is another one than the reference, in earnest."""
        return abs(self.off) > max(MAX_LEFT, CERTAIN * self.row.error)


def read(roots: Sequence[Path]) -> list[Run]:
    """All runs with a reference, seeds apart."""
    found = []
    for root in roots:
        states, _ = rows(list_runs(root))
        for row in table_of(states, by="seed").rows:
            if row.reference is not None:
                left = np.nan if row.left is None else row.left
                found.append(Run(row, row.energy - row.reference, left))
    return found


def show(runs: Sequence[Run]) -> None:
    """A line for each run, and what they say together."""
    print("| run | off, mHa | error | left, mHa | S² | verdict | wrong | note |")
    print("|---|---|---|---|---|---|---|---|")
    for run in sorted(runs, key=lambda one: -abs(one.off)):
        row = run.row
        s2 = "" if row.s2 is None else f"{row.s2:.3f}"
        numbers = f"{1e3 * run.off:.2f} | {1e3 * row.error:.2f} | {1e3 * run.left:.2f} | {s2}"
        wrong = "wrong" if run.is_wrong else ""
        print(f"| {row.run_ids[0]} | {numbers} | {row.verdict} | {wrong} | {row.why} |")
    print()
    for verdict in VERDICTS:
        own = [run for run in runs if run.row.verdict == verdict]
        n_wrong = sum(run.is_wrong for run in own)
        print(f"{verdict}: {len(own) - n_wrong} right, {n_wrong} wrong")
    small = [run for run in runs if run.left < SMALL]
    close = sum(abs(run.off) <= max(CLOSE, CERTAIN * run.row.error) for run in small)
    print(f"less than {1e3 * SMALL:g} mHa left: {close} of {len(small)} within {1e3 * CLOSE:g} mHa")
    known = [run for run in runs if run.off > CERTAIN * run.row.error and run.left > 0.0]
    if known:
        ratios = np.log2([run.left / run.off for run in known])
        low, middle, high = 2.0 ** np.percentile(ratios, [16, 50, 84])
        print(
            f"predicted over true, of {len(known)} runs that are off by 3 error bars: "
            f"{middle:.2f} in the median, {low:.2f} to {high:.2f} in two thirds"
        )


def draw(runs: Sequence[Run], path: Path) -> None:
    """Predicted against true, both logarithmic; a colour for each verdict."""
    from matplotlib.figure import Figure

    axes = (figure := Figure((5.0, 4.5))).subplots()
    for verdict in VERDICTS:
        own = [run for run in runs if run.row.verdict == verdict]
        off = 1e3 * np.maximum([run.off for run in own], 1e-5)
        left = 1e3 * np.maximum([run.left for run in own], 1e-5)
        error = [1e3 * run.row.error for run in own]
        axes.errorbar(off, left, xerr=error, fmt="o", markersize=4.0, label=verdict)
    line = np.array([1e-2, 1e2])
    axes.plot(line, line, "k-", line, 2.0 * line, "k:", line, 0.5 * line, "k:", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="off, mHa", ylabel="left as predicted, mHa")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and draw the picture if it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roots", nargs="+", type=Path, help="runs roots")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args(arguments)
    runs = read(options.roots)
    show(runs)
    if options.picture:
        draw(runs, options.picture)


if __name__ == "__main__":
    main()
