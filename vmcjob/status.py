"""How the runs are doing: run directories joined with living processes and with a queue."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from vmcjob.errors import RunDirError
from vmcjob.rundir import (
    DISK_FULL,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    Phase,
    Process,
    Record,
    RunDir,
    Submission,
    is_disk_full,
)

STALE_S = 120.0  # a worker on another host that was silent for so long is taken for dead
WITHOUT_A_WORD = (
    "the job ended without a word of the worker or its supervisor; "
    "vmcjob logs --err has SLURM's, vmcjob resume goes on"
)
SILENT = (
    f"nothing was heard for {STALE_S:g} s, and its job goes on: its setup is long, it hangs, or "
    "the clocks of hosts differ; vmcjob logs --err tells more, vmcjob cancel ends it"
)
TRAINED_ONLY = "trained only, so without an energy: evaluate.steps is 0"
NEVER_STARTED = (
    "its turn never came: the queue of this machine that it waited in was killed; "
    "vmcjob resume goes on"
)


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


class Stage(StrEnum):
    """Where a batch system has a job."""

    WAITING = "waiting"
    ACTIVE = "active"
    ENDED = "ended"


@dataclass(frozen=True)
class JobState:
    """What a batch system says about one run; how it says it is the scheduler's business."""

    stage: Stage
    job_id: str | None = None
    words: str = ""  # why it waits, or how it ended
    is_cancelled: bool = False
    started_at: float | None = None
    is_suspended: bool = False  # its processes stand still, and give no sign of life
    is_ending: bool = False  # its last processes are being ended; it may come back


Queue = Mapping[Path, JobState]
"""The state of the job of each run directory that a batch system was asked about."""
NO_QUEUE: Queue = {}


@dataclass(frozen=True)
class Observation:
    """What a run's directory, the process table and the queue said about it."""

    record: Record
    submission: Submission | None
    heartbeat: Heartbeat | None
    outcome: OutcomeRecord | None
    is_cancelled: bool
    is_told_to_stop: bool  # a job's worker that is still at it
    is_worker_alive: bool
    is_worker_gone: bool  # seen to be, in this machine's own process table
    is_launcher_gone: bool
    job: JobState | None = None


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


def rows(runs: Iterable[RunDir], queue: Queue = NO_QUEUE) -> tuple[list[Row], list[RunDirError]]:
    """One row per run, and the error of every run that does not say what it is."""
    found: list[Row] = []
    errors: list[RunDirError] = []
    for run in runs:
        try:
            found.append(examine(run, queue))
        except RunDirError as error:
            errors.append(error)
    return found, errors


def examine(run: RunDir, queue: Queue = NO_QUEUE) -> Row:
    """How one run is doing, now."""
    now = time.time()
    seen = observe(run, now, queue.get(run.path))
    state, beat = judge(seen), seen.heartbeat
    has_energy = beat is not None and not (state is State.FINISHED and run.is_trained_only)
    is_running = state in (State.RUNNING, State.STOPPING)
    return Row(
        run=run,
        run_id=seen.record.run_id,
        name=seen.record.name,
        point=seen.record.point,
        seed=seen.record.seed,
        science_sha256=seen.record.science_sha256,
        state=state,
        message=_explain(run, state, seen),
        phase=beat.phase if beat else None,
        step=beat.step if beat else None,
        n_steps=beat.n_steps if beat else None,
        energy=beat.energy if beat and has_energy else None,
        error=beat.error if beat and has_energy else None,
        acceptance=beat.acceptance if beat else None,
        steps_per_s=beat.steps_per_s if beat and is_running else None,
        eta_s=beat.eta_s if beat and is_running else None,
        heartbeat_age_s=max(0.0, now - beat.time) if beat else None,
        job_id=_job_id(seen),
    )


def observe(run: RunDir, now: float, job: JobState | None = None) -> Observation:
    """Look at everything, in the order that a worker's last moments demand.

    A worker writes its outcome and then ends, so the outcome is read last: had it been read
    first, a worker that ended in between would look dead without an outcome.
    """
    record = run.read_record()
    submission = run.read_submission()
    heartbeat = run.read_heartbeat()
    workers = list(_workers(submission, heartbeat))
    is_worker_alive = any(_is_alive(worker, sign, now) for worker, sign in workers)
    is_worker_gone = bool(workers) and all(w.is_alive() is False for w, _ in workers)
    launcher = submission.launcher if submission else None
    is_launcher_gone = launcher is not None and launcher.is_alive() is False
    outcome = run.read_outcome()
    return Observation(
        record=record,
        submission=submission,
        heartbeat=heartbeat,
        outcome=outcome,
        is_cancelled=run.read_cancellation() is not None,
        is_told_to_stop=is_worker_alive and outcome is None and _is_told_to_stop(run, submission),
        is_worker_alive=is_worker_alive,
        is_worker_gone=is_worker_gone,
        is_launcher_gone=is_launcher_gone,
        job=job,
    )


def judge(seen: Observation) -> State:
    """The state that follows from what was seen.

    A launcher of another host cannot be seen, and its run counts as queued: to call it dead
    would invite a second worker. `cancel` takes such a run back.
    """
    submission, outcome = seen.submission, seen.outcome
    if submission is not None and submission.is_job:
        return _judge_job(seen, submission)
    is_waiting = submission is not None and submission.worker is None
    if seen.is_worker_alive and outcome is None:
        return _at_work(seen)
    if is_waiting and not seen.is_launcher_gone:
        return State.QUEUED  # also when an earlier attempt left an outcome
    if seen.is_cancelled and (outcome is None or outcome.outcome is Outcome.PREEMPTED):
        return State.CANCELLED
    if outcome is not None:
        return State(outcome.outcome)
    if submission is None and seen.heartbeat is None:
        return State.NEW
    return State.DEAD


def _judge_job(seen: Observation, submission: Submission) -> State:
    """The state of a run that was given to a batch system.

    The queue knows best which jobs wait and which are over; the run knows best what came of it.
    Without an answer of the queue, the run directory is all there is.
    """
    job, outcome = seen.job, seen.outcome
    if (state := _judge_without_job(seen, submission)) is not None:
        return state
    if job is not None and job.stage is Stage.WAITING:
        return State.QUEUED
    if job is not None and job.stage is Stage.ACTIVE:
        return _judge_active(seen, submission, job.started_at or 0.0)
    if seen.is_worker_alive and outcome is None and (job is None or _is_here(seen)):
        return _at_work(seen)
    if submission.cancelled_at is not None or (job is not None and job.is_cancelled):
        return State(outcome.outcome) if outcome and not _is_resumable(outcome) else State.CANCELLED
    is_of_it = outcome is not None and submission.has_come_to(outcome)
    if job is None and not submission.started_at and not is_of_it:
        return State.QUEUED
    # A job that ended before its supervisor could say a word has not come to what was before it.
    was_refused = submission.job_id is None
    if outcome is not None and (is_of_it or was_refused or _is_resumable(outcome)):
        return State(outcome.outcome)
    is_unknown = submission.job_id is None and not submission.started_at
    return State.NEW if is_unknown and seen.heartbeat is None else State.DEAD


def _judge_without_job(seen: Observation, submission: Submission) -> State | None:
    """The state of a run that is through with its job, which goes on for others; else None."""
    job, outcome = seen.job, seen.outcome
    if submission.place is None or job is None or job.stage is Stage.ENDED:
        return None
    if seen.is_worker_alive and outcome is None:
        return None
    is_settled = outcome is not None and submission.has_come_to(outcome)
    if outcome is not None and is_settled and not _is_resumable(outcome):
        return State(outcome.outcome)
    return None if submission.cancelled_at is None else State.CANCELLED


def _judge_active(seen: Observation, submission: Submission, job_started_at: float) -> State:
    """The state of a run whose job has a machine.

    What becomes of a run that has stopped half-way is known when its job has ended: it may have
    been cancelled, or come back.
    """
    outcome = seen.outcome
    has_ended = outcome is not None and outcome.time >= job_started_at
    if outcome is not None and has_ended and not _is_resumable(outcome):
        return State(outcome.outcome)
    is_ending = seen.job is not None and seen.job.is_ending
    if has_ended or is_ending or submission.cancelled_at is not None:
        return State.STOPPING
    if seen.is_worker_alive or (seen.job is not None and seen.job.is_suspended):
        return _at_work(seen)
    # What is on another host and silent may be dead, and is not said to be: its supervisor would
    # end the job, and a clock that is wrong makes the liveliest look so.
    has_supervisor = (submission.started_at or 0.0) >= job_started_at
    return State.DEAD if has_supervisor and seen.is_worker_gone else State.RUNNING


def _at_work(seen: Observation) -> State:
    """The state of a run whose worker is alive and has not said how it ended."""
    return State.STOPPING if seen.is_cancelled or seen.is_told_to_stop else State.RUNNING


def _is_told_to_stop(run: RunDir, submission: Submission | None) -> bool:
    """Whether a job's worker was asked to stop: cancelled, or by its supervisor, which notes it."""
    if submission is None or not submission.is_job:
        return False
    if submission.cancelled_at is not None:
        return True
    worker = "stop", submission.host, submission.worker_pid  # no times: clocks of hosts differ
    lines = run.read_attempts()
    return any((it.get("event"), it.get("host"), it.get("worker_pid")) == worker for it in lines)


def _is_here(seen: Observation) -> bool:
    """Whether the worker was seen in this machine's own process table."""
    return seen.heartbeat is not None and seen.heartbeat.process.is_alive() is True


def _is_resumable(outcome: OutcomeRecord) -> bool:
    """Whether the run stopped half-way."""
    return State(outcome.outcome) is State.PREEMPTED


def _job_id(seen: Observation) -> str | None:
    """The job's id, from the queue if the submission was cut short before it knew."""
    found = seen.submission.job_id if seen.submission else None
    return found or (seen.job.job_id if seen.job else None)


def _explain(run: RunDir, state: State, seen: Observation) -> str:
    """Why a run waits or has ended: in its own words, else in those of who lost it."""
    outcome, job = seen.outcome, seen.job
    if state is State.QUEUED or (job is not None and job.is_suspended):
        return job.words if job else ""
    if state is State.DEAD:
        return (job.words if job else "") or _explain_death(run, seen)
    if state is State.RUNNING and _is_silent(seen):
        return SILENT
    if state is State.FINISHED and (damage := run.damage):
        return damage
    if state is State.FINISHED and run.is_trained_only:
        return TRAINED_ONLY
    return outcome.message if outcome and not state.is_active else ""


def _is_silent(seen: Observation) -> bool:
    """Whether nothing of a run is heard whose job has had a machine for a while."""
    if seen.job is None or seen.job.stage is not Stage.ACTIVE or seen.is_worker_alive:
        return False
    return time.time() - (seen.job.started_at or 0.0) > STALE_S


def _explain_death(run: RunDir, seen: Observation) -> str:
    """What the disk, the queue or the run's own history knows of the end of its last worker."""
    if is_disk_full(run.path):
        return DISK_FULL
    if seen.submission and not seen.submission.is_job and not seen.submission.worker:
        return NEVER_STARTED  # whoever was to start it is gone, or the run would be queued
    last, job = (run.read_attempts() or [{}])[-1], seen.job
    is_of_before = seen.submission is not None and seen.submission.started_at is None
    if last.get("event") == "lost" and not (is_of_before and job):
        who = f"the worker of rank {last['rank']}" if "rank" in last else "the worker"
        how = str(last.get("how"))
        end = f"was killed by {how}" if how.startswith("SIG") else f"ended: {how}"
        return f"{who} {end}; vmcjob resume goes on"
    return WITHOUT_A_WORD if job is not None and job.stage is Stage.ENDED else ""


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
