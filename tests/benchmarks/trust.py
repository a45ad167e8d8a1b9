"""Whether training can ruin a wave function in silence: many short trainings of H2 and LiH.

    export JAX_COMPILATION_CACHE_DIR=cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
    python -m tests.benchmarks.trust runs/trust --seeds 20
    python -m tests.benchmarks.trust runs/trust --seeds 20 --share 0/2    # and 1/2 beside it
    python -m tests.benchmarks.trust --table    # run nothing; what is known so far
    python -m tests.benchmarks.trust --table --proposal plain --damping-per-variance 0

Every ansatz, number of walkers, of moves between updates and of training steps, with every seed, at
1.0 bohr, where updates that go too far were seen; and LiH with 512 walkers. All other keys are at
their defaults. What a run has come to is kept in trust.jsonl beside this file, with the commit that
ran it, and such a run is not repeated: the command can be stopped and given again, elsewhere too;
lines with a commit that "judged" have errors that know of correlation, as those of new runs do. A
calculation is listed with its worst run: how far the evaluated energy lies above the last tenth of
its training, in mHa, whether that is more than three errors and 5 mHa, how many runs lie above
Hartree-Fock, how many ended badly, and how many that did any of this are called converged all the
same.
"""

import argparse
import inspect
import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from tests.run.harness import make_run
from vmcjob.analysis import aggregate, open_run
from vmcjob.errors import RunDirError
from vmcjob.plan import make_plan
from vmcjob.rundir import RunDir
from vmcjob.spec import Spring, parse_spec
from vmcjob.stats import estimate
from vmcjob.verdict.findings import CERTAIN, rise_above_tail
from vmcjob.vmc import loop, pretrain
from vmcjob.vmc.steps import Program, on_all_devices

KNOWN = Path(__file__).with_suffix(".jsonl")
MAX_RISE = 5e-3  # hartree
ANSATZE = {
    "slater-jastrow": "",
    "ferminet": "determinants = 2\nlayers = 2\none_electron_width = 16\ntwo_electron_width = 4",
    "psiformer": "determinants = 2\nlayers = 2\nheads = 2\nhead_width = 8",
}
ATOMS = {"h2": '[["H", 0, 0, 0], ["H", 0, 0, 1.0]]', "lih": '[["Li", 0, 0, 0], ["H", 0, 0, 3.015]]'}
SPEC = """
name = "{system}"
seed = {seed}
[system]
atoms = {atoms}
[ansatz]
kind = "{ansatz}"
{network}
[sampler]
walkers = {walkers}
steps = {moves}
proposal = "{proposal}"
[optimizer]
damping_per_variance = {damping_per_variance}
[train]
steps = {steps}
[evaluate]
steps = 300
"""


@dataclass(frozen=True)
class Calculation:
    """One of the matrix; its seeds are its runs."""

    system: str
    ansatz: str
    walkers: int
    moves: int
    steps: int
    proposal: str
    damping_per_variance: float

    def text(self, seed: int) -> str:
        """The spec of one run."""
        atoms, network = ATOMS[self.system], ANSATZE[self.ansatz]
        return SPEC.format(seed=seed, atoms=atoms, network=network, **vars(self))


@dataclass(frozen=True)
class Finding:
    """What one run has come to; energies in hartree."""

    rise: float  # of the evaluated energy above the last tenth of training
    error: float
    is_above_hartree_fock: bool
    is_converged: bool

    @property
    def is_ruined(self) -> bool:
        """Whether the state that was evaluated is not the one that was trained."""
        return self.is_above_hartree_fock or self.rise > max(MAX_RISE, CERTAIN * self.error)


def matrix(proposal: str, per_variance: float) -> Iterator[Calculation]:
    """All calculations with such moves and damping, the short ones first."""
    for steps, walkers, moves in itertools.product((100, 300, 1000), (128, 256, 512), (3, 10)):
        for ansatz in ANSATZE:
            yield Calculation("h2", ansatz, walkers, moves, steps, proposal, per_variance)
    for steps in (100, 300, 1000):
        for ansatz in ANSATZE:
            yield Calculation("lih", ansatz, 512, 10, steps, proposal, per_variance)


def run_id_of(text: str) -> str:
    """A name for everything that decides the numbers of the run of a spec."""
    (task,) = make_plan(parse_spec(text, "trust.toml")).tasks
    return task.run_id


def work(root: Path, text: str) -> RunDir:
    """Bring the run of a spec to its end, if it is not there."""
    from vmcjob.run import main

    directory = RunDir(root / run_id_of(text))
    if not directory.path.exists():
        make_run(root, text)
    if directory.read_outcome() is None:
        main(directory.path)
    return directory


@contextmanager
def shared_programs() -> Iterator[None]:
    """Trace the programs of a calculation once: seeds are given to them.

    One that was gone back to its last commit has other programs, which nobody shares.
    """
    kept: dict[str, Program] = {}

    def once(step: Callable[..., Any]) -> Program:
        owner = inspect.getclosurevars(step).nonlocals["self"]
        if owner.retry or getattr(owner, "chunk_divisor", 1) > 1:
            return on_all_devices(step)
        name = step.__qualname__
        if name not in kept:
            kept[name] = on_all_devices(step)
        return kept[name]

    with patch.object(loop, "on_all_devices", once), patch.object(pretrain, "on_all_devices", once):
        yield
    jax.clear_caches()  # programs of hundreds of runs are more than a process may map


def judge(directory: RunDir) -> Finding | None:
    """None for a run that has no energy to show."""
    try:
        (row,) = aggregate(directory.path.name, runs=directory.path.parent).rows
    except (RunDirError, ValueError):
        return None
    run = open_run(directory.path)
    energies = np.asarray(run.train["energy"])
    evaluated = estimate(np.asarray(run.evaluate["energy"]))
    rise, error = rise_above_tail(energies[-max(1, len(energies) // 10) :], evaluated)
    above = row.hartree_fock is not None and row.energy - row.hartree_fock > CERTAIN * row.error
    return Finding(rise, error, above, row.converged)


def describe(calculation: Calculation, found: list[Finding | None]) -> str:
    """A calculation's row."""
    known = [one for one in found if one is not None]
    rises = [1e3 * one.rise for one in known]
    ruined = [one for one in known if one.is_ruined]
    cells = (
        *vars(calculation).values(),
        len(found),
        f"{np.median(rises):.1f}" if rises else "-",
        f"{max(rises):.1f}" if rises else "-",
        len(ruined),
        sum(one.is_above_hartree_fock for one in known),
        len(found) - len(known),
        sum(one.is_converged for one in ruined),
    )
    return f"| {' | '.join(map(str, cells))} |"


def read_findings() -> dict[str, Finding | None]:
    """What is known of runs, by id; None of one without an energy."""
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    every = map(json.loads, lines)
    return {one["run"]: one["found"] and Finding(**one["found"]) for one in every}


def keep(run_id: str, found: Finding | None) -> None:
    """For read_findings(); one line, so that several processes may do so."""
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    line = {"run": run_id, "commit": commit, "found": found and asdict(found)}
    with open(KNOWN, "a") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    """Do what is not done yet, and print a row for each calculation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=Path("runs/trust"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--proposal", choices=("plain", "scaled"), default="scaled")
    parser.add_argument("--damping-per-variance", type=float, default=Spring().damping_per_variance)
    parser.add_argument("--systems", nargs="+", choices=list(ATOMS), default=list(ATOMS))
    parser.add_argument("--share", default="0/1", help="which of how many equal parts of the work")
    parser.add_argument("--table", action="store_true", help="run nothing; what is known so far")
    options = parser.parse_args()
    part, parts = map(int, options.share.split("/"))
    every = matrix(options.proposal, options.damping_per_variance)
    share = [one for one in every if one.system in options.systems][part::parts]
    for calculation in () if options.table else share:
        with shared_programs():
            for text in map(calculation.text, range(options.seeds)):
                if run_id_of(text) not in read_findings():
                    keep(run_id_of(text), judge(work(options.root, text)))
    known = read_findings()
    print(
        "| system | ansatz | walkers | moves | steps | proposal | damping per variance | runs "
        "| median rise | worst rise | ruined | above Hartree-Fock | without energy "
        "| ruined, converged |"
    )
    print("|" + " --- |" * 14)
    for calculation in share:
        ids = [run_id_of(calculation.text(seed)) for seed in range(options.seeds)]
        print(describe(calculation, [known[one] for one in ids if one in known]), flush=True)


if __name__ == "__main__":
    main()
