"""Observation of a run: its directory, living processes, and the state of its job."""

import os
import time
from collections.abc import Iterable
from dataclasses import replace

from vmcjob.rundir import Heartbeat, Process, RunDir, Submission
from vmcjob.runs.state import STALE_S, JobState, Observation, Stage


def observe(run: RunDir, now: float, job: JobState | None = None) -> Observation:
    """Read all facts about a run; if its worker seems lost, as the file server has them now."""
    seen = _read(run, now, job)
    if not _seems_lost(seen):
        return seen
    names = run.refresh()
    seen = _read(run, now, job)
    has_outcome = run.outcome_path.name in names
    is_hidden = seen.outcome is None and has_outcome and not os.path.lexists(run.outcome_path)
    return replace(seen, is_outcome_hidden=is_hidden)


def _seems_lost(seen: Observation) -> bool:
    """Whether a run that was submitted has neither an outcome nor anybody who works on it."""
    if seen.outcome is not None or (seen.submission is None and seen.heartbeat is None):
        return False
    if seen.job is not None and seen.job.stage is Stage.WAITING:
        return False
    return not seen.is_worker_alive or (seen.job is not None and seen.job.stage is Stage.ENDED)


def _read(run: RunDir, now: float, job: JobState | None) -> Observation:
    """Read all facts about a run, in the order that the end of a worker requires.

    A worker writes its outcome and then ends, so the outcome is read last. If it were read first, a
    worker that ends in between would look dead without an outcome.
    """
    record = run.read_record()
    submission = run.read_submission()
    heartbeat = run.read_heartbeat()
    workers = list(_workers(submission, heartbeat))
    seems_alive = any(_is_alive(worker, sign, now) for worker, sign in workers)
    is_seen_gone = bool(workers) and all(w.is_alive() is False for w, _ in workers)
    launcher = submission.launcher if submission else None
    is_launcher_alive = None if launcher is None else launcher.is_alive()
    outcome = run.read_outcome()
    events = _events(run, submission) if outcome is None else frozenset()
    is_worker_alive = seems_alive and "lost" not in events
    is_told = "stop" in events or (submission is not None and submission.cancelled_at is not None)
    return Observation(
        record=record,
        submission=submission,
        heartbeat=heartbeat,
        outcome=outcome,
        is_cancelled=run.read_cancellation() is not None,
        is_told_to_stop=is_worker_alive and outcome is None and is_told,
        is_worker_alive=is_worker_alive,
        # A supervisor that lives will say what became of its worker, and may have it come back.
        is_worker_gone=(is_seen_gone and not is_launcher_alive) or "lost" in events,
        is_launcher_gone=is_launcher_alive is False,
        last_sign=max((sign for _, sign in workers), default=0.0),
        job=job,
    )


def heard_of_s(run: RunDir) -> float | None:
    """Seconds since the last sign of life of the run's worker; None if it is known to be gone."""
    seen = observe(run, time.time())
    return silence_s(seen) if seen.is_worker_alive and seen.outcome is None else None


def silence_s(seen: Observation) -> float:
    """Seconds since the last sign of life of a run's worker."""
    return max(0.0, time.time() - seen.last_sign)


def _events(run: RunDir, submission: Submission | None) -> frozenset[object]:
    """Events that a job's supervisor recorded about its worker: asked to stop, or lost.

    No times are compared: clocks of hosts differ.
    """
    if submission is None or not submission.is_job:
        return frozenset()
    worker = submission.host, submission.worker_pid
    lines = run.read_attempts()
    return frozenset(
        line.get("event") for line in lines if (line.get("host"), line.get("worker_pid")) == worker
    )


def _workers(
    submission: Submission | None, heartbeat: Heartbeat | None
) -> Iterable[tuple[Process, float]]:
    """Possible workers of the run, each with the time of its last sign of life."""
    if heartbeat is not None:
        yield heartbeat.process, heartbeat.time
    # The launcher knows its worker before that has said a word.
    if submission is not None and submission.worker is not None:
        yield submission.worker, submission.started_at or submission.submitted_at


def _is_alive(worker: Process, sign_of_life: float, now: float) -> bool:
    """Whether a worker is in the process table, or, on another host, gave a recent sign of life."""
    alive = worker.is_alive()
    return now - sign_of_life <= STALE_S if alive is None else alive
