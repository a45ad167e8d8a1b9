"""How the runs are doing: run directories joined with the processes that are still alive."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vmcjob.errors import RunDirError
from vmcjob.rundir import (
    RESULTS_LOST,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    Phase,
    Process,
    Record,
    RunDir,
    Submission,
)

STALE_S = 120.0  # a worker on another host that was silent for so long is taken for dead


class State(StrEnum):
    """What a run is doing, in the order of its life."""

    NEW = "NEW"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    DIVERGED = "DIVERGED"
    FAILED = "FAILED"
    DEAD = "DEAD"

    @property
    def is_active(self) -> bool:
        """Whether something will still happen by itself."""
        return self in (State.QUEUED, State.RUNNING, State.STOPPING)


@dataclass(frozen=True)
class Observation:
    """What a run's directory and the process table said about it."""

    record: Record
    submission: Submission | None
    heartbeat: Heartbeat | None
    outcome: OutcomeRecord | None
    is_cancelled: bool
    is_worker_alive: bool
    is_launcher_gone: bool


@dataclass(frozen=True)
class Row:
    """One run in one line; None where nothing is known."""

    run: RunDir
    run_id: str
    name: str
    point: Mapping[str, Any]  # sweep coordinates: numbers and texts
    seed: int
    science_sha256: str
    state: State
    message: str
    phase: Phase | None
    step: int | None
    n_steps: int | None
    energy: float | None  # hartree
    error: float | None  # hartree
    acceptance: float | None
    steps_per_s: float | None
    eta_s: float | None
    heartbeat_age_s: float | None
    job_id: str | None


def rows(runs: Iterable[RunDir]) -> tuple[list[Row], list[RunDirError]]:
    """One row per run, and the error of every run that does not say what it is."""
    found: list[Row] = []
    errors: list[RunDirError] = []
    for run in runs:
        try:
            found.append(examine(run))
        except RunDirError as error:
            errors.append(error)
    return found, errors


def examine(run: RunDir) -> Row:
    """How one run is doing, now."""
    now = time.time()
    seen = observe(run, now)
    state, beat = judge(seen), seen.heartbeat
    is_running = state in (State.RUNNING, State.STOPPING)
    return Row(
        run=run,
        run_id=seen.record.run_id,
        name=seen.record.name,
        point=seen.record.point,
        seed=seen.record.seed,
        science_sha256=seen.record.science_sha256,
        state=state,
        message=_explain(run, state, seen.outcome),
        phase=beat.phase if beat else None,
        step=beat.step if beat else None,
        n_steps=beat.n_steps if beat else None,
        energy=beat.energy if beat else None,
        error=beat.error if beat else None,
        acceptance=beat.acceptance if beat else None,
        steps_per_s=beat.steps_per_s if beat and is_running else None,
        eta_s=beat.eta_s if beat and is_running else None,
        heartbeat_age_s=max(0.0, now - beat.time) if beat else None,
        job_id=seen.submission.job_id if seen.submission else None,
    )


def observe(run: RunDir, now: float) -> Observation:
    """Look at everything, in the order that a worker's last moments demand.

    A worker writes its outcome and then ends, so the outcome is read last: had it been read
    first, a worker that ended in between would look dead without an outcome.
    """
    record = run.read_record()
    submission = run.read_submission()
    heartbeat = run.read_heartbeat()
    is_worker_alive = any(
        _is_alive(worker, sign, now) for worker, sign in _workers(submission, heartbeat)
    )
    launcher = submission.launcher if submission else None
    is_launcher_gone = launcher is not None and launcher.is_alive() is False
    outcome = run.read_outcome()
    return Observation(
        record=record,
        submission=submission,
        heartbeat=heartbeat,
        outcome=outcome,
        is_cancelled=run.read_cancellation() is not None,
        is_worker_alive=is_worker_alive,
        is_launcher_gone=is_launcher_gone,
    )


def judge(seen: Observation) -> State:
    """The state that follows from what was seen.

    A launcher of another host cannot be seen, and its run counts as queued: to call it dead
    would invite a second worker. `cancel` takes such a run back.
    """
    submission, outcome = seen.submission, seen.outcome
    is_waiting = submission is not None and submission.worker is None
    if seen.is_worker_alive and outcome is None:
        return State.STOPPING if seen.is_cancelled else State.RUNNING
    if is_waiting and not seen.is_launcher_gone:
        return State.QUEUED  # also when an earlier attempt left an outcome
    if seen.is_cancelled and (outcome is None or outcome.outcome is Outcome.PREEMPTED):
        return State.CANCELLED
    if outcome is not None:
        return State(outcome.outcome)
    if submission is None and seen.heartbeat is None:
        return State.NEW
    return State.DEAD


def _explain(run: RunDir, state: State, outcome: OutcomeRecord | None) -> str:
    """Why a run ended: in its own words, or in those of the launcher that lost it."""
    if state is State.DEAD and (attempts := run.read_attempts()) and "how" in attempts[-1]:
        return f"the worker ended by {attempts[-1]['how']}"
    if state is State.FINISHED and not run.has_results:
        return RESULTS_LOST
    return outcome.message if outcome and not state.is_active else ""


def _workers(
    submission: Submission | None, heartbeat: Heartbeat | None
) -> Iterable[tuple[Process, float]]:
    """Who may be working on the run, each with the time of its last sign of life."""
    if heartbeat is not None:
        yield heartbeat.process, heartbeat.time
    # The launcher knows its worker before that has said a word.
    if submission is not None and submission.worker is not None:
        yield submission.worker, submission.started_at or submission.submitted_at


def _is_alive(worker: Process, sign_of_life: float, now: float) -> bool:
    """Seen in the process table, or, on another host, heard of lately."""
    alive = worker.is_alive()
    return now - sign_of_life <= STALE_S if alive is None else alive
