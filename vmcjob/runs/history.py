"""Earlier runs that are like a planned one, and the wall time and memory that they took."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vmcjob.errors import VmcJobError
from vmcjob.rundir import Outcome, RunDir, list_runs
from vmcjob.runs.usage import spent, work
from vmcjob.spec import JobSpec, load_resolved, science

MAX_LOOKS: Final = 300
"""Runs that are compared: reading a spec takes milliseconds."""
BESIDE_COST: Final = (
    *(("train", "steps"), ("evaluate", "steps")),
    *(("evaluate", "target_error"), ("evaluate", "target_of")),
)
"""Keys that change how long a run is, and not what a step of it costs."""
SAME_SCIENCE: Final = "the same calculation apart from seed and steps"
SAME_COST: Final = (
    "the same electrons, core potentials, wave function, walkers, moves, optimizer, observables "
    "and precision"
)


@dataclass(frozen=True)
class Like:
    """A finished run that is like the planned one."""

    run: RunDir
    seconds: float  # of work, all attempts together
    n_steps: int  # of training and evaluation
    n_evaluated: int
    error: float | None  # of the energy, hartree
    peak_mb: float | None  # host memory
    gpu_peak_mb: float | None
    devices: str


@dataclass(frozen=True)
class History:
    """The runs that are like a planned one, and the rule that chose them."""

    rule: str
    runs: tuple[Like, ...]

    def seconds_for(self, n_steps: int) -> float | None:
        """Seconds for so many steps at the pace of the slowest run; None without runs."""
        return max((like.seconds / like.n_steps * n_steps for like in self.runs), default=None)

    @property
    def peak_mb(self) -> float | None:
        """The largest host memory of any of the runs; None if none has noted it."""
        return max((like.peak_mb for like in self.runs if like.peak_mb), default=None)

    def steps_to(self, target_error: float) -> int | None:
        """Steps of evaluation until an error in hartree; it falls as one over their root.

        The run with the largest need counts; None if no run has an error.
        """
        needs = [
            like.n_evaluated * (like.error / target_error) ** 2 for like in self.runs if like.error
        ]
        return round(max(needs)) if needs else None


def find_like(root: Path, spec: JobSpec) -> History:
    """The finished runs of a runs root that are like `spec`, by the closest rule that finds any."""
    by_science: list[Like] = []
    by_cost: list[Like] = []
    wanted, cost = _without_length(spec), _cost_keys(spec)
    for run in list_runs(root)[-MAX_LOOKS:]:
        outcome = run.read_outcome()
        if outcome is None or outcome.outcome is not Outcome.FINISHED:
            continue
        try:
            other = load_resolved(run.read_spec_text(), str(run.spec_path))
        except VmcJobError:
            continue  # it cannot be compared
        if _cost_keys(other) != cost or (like := _like(run)) is None:
            continue
        by_cost.append(like)
        if _without_length(other) == wanted:
            by_science.append(like)
    return History(SAME_SCIENCE, tuple(by_science)) if by_science else _by_cost(by_cost)


def _by_cost(found: Iterable[Like]) -> History:
    return History(SAME_COST, tuple(found))


def _like(run: RunDir) -> Like | None:
    """The use of a finished run; None if its steps or its time are not known."""
    attempts, beat = run.read_attempts(), run.read_heartbeat()
    rows, done = run.n_committed, work(attempts, beat)
    n_steps = sum(rows.values())
    if not n_steps or not done.seconds or not done.is_complete:
        return None
    used = spent(attempts, run.read_submission())
    devices = str((run.read_provenance() or {}).get("devices", "unknown devices"))
    return Like(
        run,
        done.seconds,
        n_steps,
        rows.get("evaluate", 0),
        beat.error if beat else None,
        used.peak_mb,
        used.gpu_peak_mb,
        devices,
    )


def _without_length(spec: JobSpec) -> object:
    """The science of a spec without the keys of its length."""
    tables = json.loads(science(spec))
    for table, key in BESIDE_COST:
        tables[table].pop(key, None)
    return tables


def _cost_keys(spec: JobSpec) -> object:
    """The keys that decide the cost of a step."""
    system = spec.system
    electrons = system.n_up, system.n_down, len(system.atoms), system.ecp, system.ecp_points
    moves = spec.sampler.walkers, spec.sampler.steps
    training = spec.optimizer.kind, spec.train.spin_penalty > 0
    measured = spec.evaluate.observables
    often = spec.evaluate.observe_every if measured else None
    return electrons, spec.ansatz, moves, training, measured, often, spec.numerics.dtype
