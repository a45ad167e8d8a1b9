"""Whether a training that is ten or a hundred times as long comes to as good a state: He and H2.

    python -m tests.benchmarks.long runs/long --systems he --steps 1000 10000 100000

A small FermiNet with all other keys at their defaults, as in `trust`. A row is a part of a
training: the mean of its energies less the exact energy, with its error, and the median variance;
the last row of a training is its evaluation, with what its verdict says. Runs that are there are
not repeated.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.benchmarks.trust import ANSATZE, work
from vmcjob.analysis import Run, aggregate, open_run
from vmcjob.stats import estimate

EXACT = {"he": -2.903724377, "h2": -1.174475714}  # hartree
ATOMS = {"he": '[["He", 0, 0, 0]]', "h2": '[["H", 0, 0, 0], ["H", 0, 0, 1.4]]'}
PARTS = (0.0, 0.1), (0.1, 0.2), (0.4, 0.5), (0.7, 0.8), (0.8, 0.9), (0.9, 1.0)  # of the training
SPEC = """
name = "{system}"
seed = {seed}
[system]
atoms = {atoms}
[ansatz]
kind = "ferminet"
{network}
[sampler]
walkers = 256
[train]
steps = {steps}
[evaluate]
steps = 1000
"""


def rows(run: Run, exact: float) -> Iterator[str]:
    """Cells of a training's parts."""
    energies, variances = (np.asarray(run.train[name]) for name in ("energy", "variance"))
    for begin, end in PARTS:
        part = slice(round(begin * len(energies)), round(end * len(energies)))
        found = estimate(energies[part])
        yield cells(f"{begin:.0%} to {end:.0%}", found.mean - exact, found.error, variances[part])


def cells(part: str, above: float, error: float, variances: np.ndarray, verdict: str = "") -> str:
    """Of one row; energies in hartree."""
    energy = f"{1e3 * above:+.3f} ± {1e3 * error:.3f}"
    return f"{part} | {energy} | {np.median(variances):.2e} | {verdict}"


def main() -> None:
    """Train, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=Path("runs/long"))
    parser.add_argument("--systems", nargs="+", choices=list(EXACT), default=list(EXACT))
    parser.add_argument("--steps", nargs="+", type=int, default=[1000, 10000, 100000])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| system | steps | part | above exact, mHa | variance, hartree² | verdict |")
    print("|" + " --- |" * 6)
    for steps in options.steps:
        for system in options.systems:
            about = {"system": system, "steps": steps, "seed": options.seed}
            text = SPEC.format(**about, atoms=ATOMS[system], network=ANSATZE["ferminet"])
            directory = work(options.root, text)
            run, exact = open_run(directory.path), EXACT[system]
            for row in rows(run, exact):
                print(f"| {system} | {steps} | {row} |")
            (row,) = aggregate(directory.path.name, runs=options.root).rows
            variances = np.asarray(run.evaluate["variance"])
            verdict = "; ".join(row.findings) or ("converged" if row.converged else "not converged")
            last = cells("evaluated", row.energy - exact, row.error, variances, verdict)
            print(f"| {system} | {steps} | {last} |", flush=True)


if __name__ == "__main__":
    main()
