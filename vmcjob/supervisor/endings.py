"""How an attempt ended: what is recorded of it, and whether there is to be another one."""

import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vmcjob.errors import RunDirError
from vmcjob.rank import Rank
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Phase, RunDir
from vmcjob.supervisor.contract import BatchContext, Fate, say
from vmcjob.supervisor.watch import DEADLINE, STOP_SIGNAL, WARNING

STOPPED = 75  # the worker's exit code after it has stopped at a checkpoint
RETRY_S = 2.0  # between two questions to a controller that may be away
MAX_REFUSALS = 3  # of a requeue, by a controller that answers


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


def conclude(attempt: Attempt, folder: str | None = None) -> int:
    """Record how the attempt ended and see to the next one where there has to be one.

    The exit code is for the batch system. `folder` is the submission's, if a run that SLURM does
    not bring back is to be submitted again.
    """
    run, reason = attempt.run, attempt.reason
    code, outcome = as_signal(attempt.returncode), run.read_outcome()
    if code < 0 and outcome is not None:  # a signal that came after its last word
        code = {Outcome.FINISHED: 0, Outcome.PREEMPTED: STOPPED}.get(outcome.outcome, code)
    if code < 0 and outcome is None and (why := _lost_rank(run, attempt.job)):
        run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=why))
    elif reason and code in (-STOP_SIGNAL, -signal.SIGTERM) and outcome is None:
        words = f"stopped by {reason} before it began; continues where it stopped"
        run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message=words))
        code = STOPPED
    if code != STOPPED:
        note_end(run, attempt.worker_pid, code)
        return abs(code)
    if reason == DEADLINE and not attempt.has_moved and not _is_cancelled(run):
        words = "the wall time ended before a single step was done; ask for more (-t)"
        run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=words))
        return 1
    if reason is not None:
        _come_back(attempt, folder)
    return STOPPED


def _come_back(attempt: Attempt, folder: str | None) -> None:
    """See to it that a run that stopped half-way goes on, unless it was cancelled."""
    run, job = attempt.run, attempt.job
    if _is_cancelled(run):
        return
    fate = Fate.RUNNING
    if attempt.reason == signal.SIGTERM.name:  # from SLURM: by itself, or for somebody
        fate = _wait_for_fate(job)
    # A preempted job that just ends, be it in its grace time, would not come back; and one that
    # SLURM ends for good, by preemption or at a deadline, it takes back when it is asked to.
    is_lost = fate in (Fate.PREEMPTED, Fate.LOST)
    if is_lost or attempt.reason in (DEADLINE, WARNING.name):
        fate = _requeue(job)
    submission = run.read_submission()
    if fate is Fate.RETURNING or submission is None or _is_cancelled(run):
        return
    if fate is Fate.CANCELLED:
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
        is_over = fate in (Fate.RETURNING, Fate.CANCELLED)
        if fate is not None and (is_over or n_refusals == MAX_REFUSALS):
            return fate
        time.sleep(RETRY_S)
    return Fate.RETURNING


def _is_cancelled(run: RunDir) -> bool:
    """Whether its user has, or its run has been removed."""
    submission = run.read_submission()
    return submission is None or submission.cancelled_at is not None


def how_it_ended(code: int) -> str:
    """An exit code as Popen has it, in words."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def as_signal(code: int) -> int:
    """An exit code as Popen has it; a container reports death by signal n as 128 + n."""
    return 128 - code if 128 < code < 128 + signal.NSIG else code


def progress(run: RunDir) -> tuple[Phase, int] | None:
    """What has been committed, as far as the heartbeat tells; warm-up never is."""
    beat: Heartbeat | None = run.read_heartbeat()
    if beat is None or beat.phase in (Phase.STARTING, Phase.WARMUP):
        return None
    return beat.phase, beat.step
