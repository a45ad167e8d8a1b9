"""How an attempt ended: what is recorded of it, and whether there is to be another one."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vmcjob.errors import RunDirError
from vmcjob.protocol import DEADLINE, as_signal, how_it_ended
from vmcjob.rank import Rank
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Phase, RunDir
from vmcjob.supervisor.contract import BatchContext, Fate, say
from vmcjob.supervisor.policy import (
    Happened,
    NextStep,
    decide,
    has_to_ask,
    has_to_requeue,
    is_answered,
    is_cut_short,
    next_step,
)

RETRY_S = 2.0  # between two questions to a controller that may be away


def note_loss(run: RunDir, rank: Rank, job: BatchContext, how: str, pid: int | None = None) -> None:
    """Say that a rank beside the first has ended before the others; a full disk may forbid it."""
    with suppress(RunDirError):
        run.append_attempt("lost", rank=rank.index, job=job.attempt, worker_pid=pid, how=how)


def _lost_rank(run: RunDir, job: BatchContext) -> str | None:
    """Why this attempt lost a rank, if it did: the others are ended for it, without a fault."""
    for line in run.read_attempts():
        if line.get("event") == "lost" and line.get("job") == job.attempt:
            return f"rank {line.get('rank')} was lost: {line.get('how')}"
    return None


def note_end(run: RunDir, pid: int, code: int) -> None:
    """Say for a worker that could not say it itself how it ended.

    One that ended by itself has failed; one that was killed is dead, and goes without an outcome.
    """
    how = how_it_ended(code)
    # A full disk or a removed run must not take us down; a run that somebody else has locked
    # meanwhile is theirs.
    with suppress(OSError, RunDirError), run.lock():
        submission = run.read_submission()
        if submission is None or submission.worker_pid != pid or run.read_outcome() is not None:
            return  # it said so itself, or the run has begun anew since and is not about it
        run.append_attempt("lost", worker_pid=pid, how=how)
        with open(run.log_path, "a", encoding="utf-8") as log:
            log.write(f"vmcjob: the worker (pid {pid}) ended by {how} without an outcome\n")
        if code >= 0:
            message = f"the worker ended by {how}; its log says more"
            run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=message))


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run whose worker has ended."""

    run: RunDir
    job: BatchContext
    worker_pid: int
    returncode: int  # the worker's, as Popen has it
    reason: str | None  # why it was asked to stop: "deadline", or a signal's name
    has_moved: bool  # whether a step was done
    is_contained: bool = False  # whether the worker was in an image


def conclude(attempt: Attempt, folder: str | None = None) -> int:
    """Record how the attempt ended and see to the next one where there has to be one.

    The exit code is for the batch system. `folder` is the submission's, if a run that SLURM does
    not bring back is to be submitted again.
    """
    run, outcome = attempt.run, attempt.run.read_outcome()
    # One question, for the answer may decide what is recorded, and nobody may be there to answer.
    is_too_short = attempt.reason == DEADLINE and not attempt.has_moved
    fate = attempt.job.fate() if is_too_short else None
    decision = decide(
        Happened(
            attempt.returncode,
            outcome=outcome.outcome if outcome else None,
            reason=attempt.reason,
            has_moved=attempt.has_moved,
            is_cancelled=_is_cancelled(run),
            lost_rank=_lost_rank(run, attempt.job),
            is_contained=attempt.is_contained,
            is_cut_short=is_cut_short(fate),
        )
    )
    if decision.outcome is not None:
        record = OutcomeRecord(outcome=decision.outcome, message=decision.message)
        run.write_outcome(record)
    if decision.is_lost:
        note_end(run, attempt.worker_pid, as_signal(attempt.returncode))
    if decision.goes_on:
        _come_back(attempt, folder)
    return decision.exit_code


def _come_back(attempt: Attempt, folder: str | None) -> None:
    """See to it that a run that stopped half-way goes on."""
    run, job, reason = attempt.run, attempt.job, attempt.reason
    fate = _wait_for_fate(job) if has_to_ask(reason) else Fate.RUNNING
    if has_to_requeue(reason, fate):
        fate = _requeue(job)
    submission, step = run.read_submission(), next_step(fate, is_cancelled=_is_cancelled(run))
    if submission is None or step is NextStep.REST:
        return
    if step is NextStep.NOTE_CANCELLATION:
        run.write_submission(replace(submission, cancelled_at=time.time()))
    elif folder is None or not job.resubmit(run, submission, Path(folder)):
        say("SLURM does not bring the job back; submitting the run again continues it")
        if outcome := run.read_outcome():
            words = f"{outcome.message}; its job does not come back, vmcjob resume goes on"
            run.write_outcome(replace(outcome, message=words))


def _wait_for_fate(job: BatchContext) -> Fate:
    """What SLURM has in mind, as soon as it says so; a job that is ended is killed soon."""
    while (fate := job.fate()) is None:
        time.sleep(RETRY_S)
    return fate


def _requeue(job: BatchContext) -> Fate:
    """Ask for another attempt until SLURM has heard it, or the allocation has ended.

    With a controller that is away, the latter does not happen.
    """
    n_refusals = 0
    while not job.requeue():
        fate = job.fate()
        n_refusals += fate is not None  # else nobody has answered
        if fate is not None and is_answered(fate, n_refusals):
            return fate
        time.sleep(RETRY_S)
    return Fate.RETURNING


def _is_cancelled(run: RunDir) -> bool:
    """Whether its user has, or its run has been removed."""
    submission = run.read_submission()
    return submission is None or submission.cancelled_at is not None


def progress(run: RunDir) -> tuple[Phase, int] | None:
    """What has been committed, as far as the heartbeat tells; warm-up never is."""
    beat: Heartbeat | None = run.read_heartbeat()
    if beat is None or beat.phase in (Phase.STARTING, Phase.WARMUP):
        return None
    return beat.phase, beat.step
