"""One finished run as the table needs it: its energy, and all that is told about it."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

import numpy as np

from vmcjob.errors import StoreError
from vmcjob.observables.forces import COLUMNS as OF_FORCES
from vmcjob.observables.forces import bond_force, doubts
from vmcjob.results.parallel import ALONE_S, Killed, compute
from vmcjob.stats import Estimate, estimate
from vmcjob.store import RunStore, peek
from vmcjob.store.layout import SeriesName
from vmcjob.verdict.evidence import read_walkers
from vmcjob.verdict.extrapolation import Extrapolation, share_slope
from vmcjob.verdict.judgement import About, Judgement, judge

FINISHED = "FINISHED"  # the only state whose evaluation is complete
NEEDED: Mapping[SeriesName, tuple[str, ...]] = {
    "evaluate": ("energy", "variance", "wall_time", "max_age", "s2", "outermost"),
    "train": ("energy", "variance"),
}
"""Of the columns of a store: reading the others would take twice the time."""


@dataclass(frozen=True)
class RunResult:
    """One run as the table needs it: who it is, what state it is in, where its numbers are."""

    run_id: str
    name: str
    point: Mapping[str, int | float | str]  # coordinates of a sweep, empty without one
    seed: int
    science_sha256: str
    state: str
    store_path: Path
    reference: float | None = None  # an energy to compare with, hartree
    method: Mapping[str, int | float | str] = field(default_factory=dict)  # keys of its spec
    n_walkers: int | None = None
    spins: tuple[int, int] | None = None  # electrons of spin up, and of spin down
    trained_from: str | None = None  # the run of the same system whose training it goes on with
    unread: str = ""  # why its spec could not be read


class Evaluated(NamedTuple):
    """A finished run with its energy, the variance of its local energy and its history."""

    run: RunResult
    energy: Estimate
    variance: float
    hartree_fock: float | None
    basis: str | None  # of Hartree–Fock
    rollbacks: int
    provenance: Mapping[str, Any]  # JSON
    wall_time_s: float
    continues: str | None  # the run whose samples are among its own
    judgement: Judgement
    extrapolation: Extrapolation
    bond_force: Estimate | None  # −dE/dR in hartree/bohr, if there are two nuclei and forces


class UnusableError(Exception):
    """Why a run cannot be in the table."""


Attempts = Callable[[Sequence[RunResult]], Iterable[Evaluated | UnusableError]]
"""Of each of some runs, in their order, its energy, or why it has none."""


def attempt_all(
    runs: Sequence[RunResult], n_processes: int = 1, alone_s: float = ALONE_S
) -> Iterator[Evaluated | UnusableError]:
    """`Attempts` in so many processes; for a moment at first in this one alone."""
    for run, found in zip(runs, compute(attempt, runs, n_processes, alone_s), strict=True):
        if isinstance(found, Killed):
            how = f"{Signals(found.signal).name} ended the process that was reading its results"
            yield UnusableError(f"{run.state.lower()}: {how}")
        else:
            yield found


def share_slopes(attempts: Attempts) -> Attempts:
    """Return the attempts, with one slope for the extrapolations of each sweep.

    Runs are of one sweep that differ in their seed and in the point of the sweep alone.
    """

    def attempt_together(runs: Sequence[RunResult]) -> Iterator[Evaluated | UnusableError]:
        found = list(attempts(runs))
        sweeps: dict[object, dict[str, Extrapolation]] = defaultdict(dict)
        for item in found:
            if isinstance(item, Evaluated):
                sweeps[_sweep(item.run)][item.run.run_id] = item.extrapolation
        shared: dict[str, Extrapolation] = {}
        for own in sweeps.values():
            shared |= dict(zip(own, share_slope(list(own.values())), strict=True))
        for item in found:
            if isinstance(item, Evaluated):
                yield item._replace(extrapolation=shared[item.run.run_id])
            else:
                yield item

    return attempt_together


def _sweep(run: RunResult) -> object:
    method = frozenset((key, x) for key, x in run.method.items() if key not in run.point)
    return run.name, frozenset(run.point), method


def attempt(run: RunResult) -> Evaluated | UnusableError:
    """`evaluate`, whatever comes of it."""
    try:
        return evaluate(run)
    except UnusableError as error:
        return error


def evaluate(run: RunResult) -> Evaluated:
    """The energy of one finished run; an `UnusableError` for any other."""
    if run.state != FINISHED and not peek.exists(run.store_path):
        raise UnusableError(f"{run.state.lower()}: no results yet")
    try:
        store = RunStore.open(run.store_path, run_id=run.run_id)
        if run.state != FINISHED or not store.is_complete:
            standing = _standing(store.n_committed, store.n_due)
            raise UnusableError(f"{run.state.lower()}: {standing}")
        series, train = (store.series(phase, names) for phase, names in NEEDED.items())
        start = store.hartree_fock()
    except StoreError as error:
        raise UnusableError(f"{run.state.lower()}: {error}") from error
    result = estimate(series["energy"], variance=series["variance"])
    variance = float(np.mean(series["variance"])) if result.n else math.nan
    if result.n == 0:
        raise UnusableError(f"{run.state.lower()}: evaluate.steps is 0")
    if not (math.isfinite(result.error) and math.isfinite(variance)):
        raise UnusableError(f"{run.state.lower()}: {result.why or 'the variance is not finite'}")
    hartree_fock = start.attributes["energy"] if start else None
    basis = start.attributes.get("basis") if start else None
    provenance = store.attrs["provenance"]
    walkers = read_walkers(store.attrs.get(peek.WALKERS))
    forces = _forces(store)
    notes = tuple(doubts(forces))
    about = About(hartree_fock, run.n_walkers, run.spins, walkers, notes, run.unread)
    judgement = judge(train, series, result, about)
    return Evaluated(
        run=run,
        energy=result,
        variance=variance,
        hartree_fock=hartree_fock,
        basis=basis,
        rollbacks=len(store.rollbacks),
        provenance=provenance,
        wall_time_s=float(series["wall_time"][-1]),
        continues=provenance.get("continues", {}).get("run_id"),
        judgement=judgement,
        extrapolation=judgement.extrapolation,
        bond_force=bond_force(forces),
    )


def _forces(store: RunStore) -> Mapping[str, np.ndarray]:
    """The series of forces; {} without forces, and where rows are lost: the energy is not."""
    try:
        return store.observed(OF_FORCES)
    except StoreError:
        return {}


def _standing(done: Mapping[str, int], planned: Mapping[str, int]) -> str:
    """How far a run has come, by the series it is in."""
    if done["evaluate"] or done["train"] == planned["train"]:
        return f"{done['evaluate']} of {planned['evaluate']} evaluation steps"
    return f"{done['train']} of {planned['train']} training steps"
