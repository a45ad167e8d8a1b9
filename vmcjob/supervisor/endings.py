"""How an attempt ended: what is recorded of it, and whether there is to be another one."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vmcjob.errors import RunDirError
from vmcjob.protocol import DEADLINE, STOPPED, as_signal, how_it_ended
from vmcjob.protocol.batch import BatchContext, Fate, say
from vmcjob.protocol.rank import Rank
from vmcjob.resources import DEFAULT_RETRIES, Retries
from vmcjob.rundir import (
    REFUSED,
    SHORT_OF_MEMORY,
    Activity,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    RunDir,
)
from vmcjob.runs.notification import notify_job
from vmcjob.supervisor.memory import HostMemory, find_growth, submit_larger
from vmcjob.supervisor.policy import (
    Decision,
    Happened,
    NextStep,
    decide,
    has_to_ask,
    has_to_requeue,
    is_answered,
    is_cut_short,
    next_step,
)
from vmcjob.supervisor.retries import (
    Cause,
    cause_of_stop,
    give_up_memory,
    is_out_of_memory,
    try_again,
)
from vmcjob.supervisor.words import last_words

PATIENCE_S = 30.0  # for a batch system that has yet to notice that a node was lost
BROUGHT_BACK = "a node was lost; its job is started again, and goes on from the last commit"
RETRY_S = 2.0  # between two questions to a controller that may be away


def note_loss(run: RunDir, rank: Rank, job: BatchContext, how: str, pid: int | None = None) -> None:
    """Say that a rank beside the first has ended before the others; a full disk may forbid it."""
    with suppress(RunDirError):
        run.append_attempt("lost", rank=rank.index, job=job.attempt, worker_pid=pid, how=how)


def _lost_ranks(run: RunDir, job: BatchContext) -> dict[object, str]:
    """The ranks beside the first that have ended badly in this attempt, and how."""
    return {
        line["rank"]: f"rank {line['rank']} was lost: {line.get('how')}"
        for line in run.read_attempts()
        if line.get("event") == "lost" and line.get("job") == job.attempt and "rank" in line
    }


def note_end(run: RunDir, pid: int, code: int, why: str = "") -> None:
    """Say for a worker that could not say it itself how it ended, and why if that is known.

    One that ended by itself has failed; one that was killed is dead, and goes without an outcome.
    """
    with suppress(OSError, RunDirError):  # a full disk or a removed run must not take us down
        try:
            with run.lock():
                _note_loss_of_first(run, pid, code, why)
        except RunDirError as error:  # another worker has the run: nothing of it is changed
            run.append_attempt(REFUSED, worker_pid=pid, how=str(error))


def _note_loss_of_first(run: RunDir, pid: int, code: int, why: str) -> None:
    """Record the end of the worker, unless it did so itself or the run has begun anew."""
    how, submission = how_it_ended(code), run.read_submission()
    if submission is None or submission.worker_pid != pid or run.read_outcome() is not None:
        return
    run.append_attempt("lost", worker_pid=pid, how=how)
    with open(run.log_path, "a", encoding="utf-8") as log:
        log.write(f"vmcjob: the worker (pid {pid}) ended by {how} without an outcome\n")
    if code >= 0:
        message = f"the worker ended by {how}{why or '; its log says more'}"
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
    notify: str | None = None  # a command that is told of the run's end
    retries: Retries = DEFAULT_RETRIES
    n_ranks: int = 1
    memory: HostMemory | None = None  # where a new job may ask for more
    has_gpus: bool = False
    log_begin: int = 0  # size of the run's log when the worker was started

    @property
    def last_words(self) -> str:
        """The last line of the worker or of Apptainer, and the commands that tell more."""
        line, run_id = last_words(self.run.log_path, self.log_begin), self.run.path.name
        more = f"; vmcjob logs {run_id} shows its log" if line else "; it wrote nothing to its log"
        if self.is_contained and not self.has_moved:
            more += ", and vmcjob doctor --on-node tries its container"
        return f": {line}{more}" if line else more


def conclude(attempt: Attempt, folder: str | None = None) -> int:
    """Record how the attempt ended and see to the next one where there has to be one.

    The exit code is for the batch system. `folder` is the submission's, if a run that the batch
    system does not bring back is to be submitted again.
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
            lost_rank=next(iter(_lost_ranks(run, attempt.job).values()), None),
            is_contained=attempt.is_contained,
            is_cut_short=is_cut_short(fate),
        )
    )
    if _has_failed(decision, outcome) and _is_brought_back(attempt):
        return decision.exit_code
    if decision.outcome is not None:
        record = OutcomeRecord(outcome=decision.outcome, message=decision.message)
        run.write_outcome(record)
    if decision.is_lost:
        code = as_signal(attempt.returncode)
        note_end(run, attempt.worker_pid, code, attempt.last_words)
        if _gets_memory(attempt, outcome):
            return STOPPED
    if not (decision.goes_on and _come_back(attempt, folder)):
        notify_job(run, attempt.notify)
    return decision.exit_code


def _has_failed(decision: Decision, outcome: OutcomeRecord | None) -> bool:
    """Whether the attempt has ended with an error, or without a word."""
    said = outcome.outcome if outcome else Outcome.FAILED
    is_lost = decision.is_lost and decision.exit_code != 0 and said is Outcome.FAILED
    return is_lost or decision.outcome is Outcome.FAILED


def _is_brought_back(attempt: Attempt) -> bool:
    """Whether the batch system starts a job of several nodes again, because one of them was lost.

    Ranks of living nodes have a supervisor that says how they ended. Where one is silent, the batch
    system may notice the loss of its node some seconds after the other processes have died.
    """
    run, job, submission = attempt.run, attempt.job, attempt.run.read_submission()
    if attempt.n_ranks == 1 or submission is None or _is_cancelled(run):
        return False
    end, fate = time.monotonic() + PATIENCE_S, None
    while len(_lost_ranks(run, job)) < attempt.n_ranks - 1 and time.monotonic() < end:
        fate = job.fate()
        if fate not in (None, Fate.RUNNING):
            break
        time.sleep(RETRY_S)
    if fate is not Fate.RETURNING:
        return False
    ended = try_again(run, submission, Cause.NODE_FAILURE, attempt.retries)
    back = OutcomeRecord(outcome=Outcome.PREEMPTED, message=BROUGHT_BACK)
    run.write_outcome(ended or back)
    if ended is not None:
        notify_job(run, attempt.notify)
    return True


def _gets_memory(attempt: Attempt, outcome: OutcomeRecord | None) -> bool:
    """Whether a run that lacked memory goes on, in another attempt of its job or in a new job."""
    run, submission, code = attempt.run, attempt.run.read_submission(), attempt.returncode
    is_asked_for = bool(attempt.retries.out_of_memory) and not _is_cancelled(run)
    is_without = is_out_of_memory(as_signal(code), attempt.reason, outcome)
    if submission is None or not (is_asked_for and is_without):
        return False
    is_on_device = outcome is not None and attempt.has_gpus
    limits, given_mb = attempt.retries, attempt.job.memory_mb()
    growth = None if is_on_device else find_growth(attempt.memory, limits, submission, given_mb)
    if growth is not None and not growth.is_possible:
        run.write_outcome(give_up_memory(run, submission, growth.before))
        return False
    note = f"; {growth}" if growth else ""
    if ended := try_again(run, submission, Cause.OUT_OF_MEMORY, attempt.retries, note):
        run.write_outcome(ended)
        return False
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message=SHORT_OF_MEMORY + note))
    if growth is None or attempt.memory is None:
        return _requeue(attempt.job) is Fate.RETURNING
    if submit_larger(attempt.job, run, submission, growth, attempt.memory.folder):
        return True
    message = f"had too little memory, and no job was taken that {growth}; vmcjob resume goes on"
    run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=message))
    return False


def _come_back(attempt: Attempt, folder: str | None) -> bool:
    """See to it that a run that stopped half-way goes on; whether it will by itself."""
    run, job, reason = attempt.run, attempt.job, attempt.reason
    fate = _wait_for_fate(job) if has_to_ask(reason) else Fate.RUNNING
    if _is_taken_too_often(attempt, fate):
        return False
    if has_to_requeue(reason, fate):
        fate = _requeue(job)
    submission, step = run.read_submission(), next_step(fate, is_cancelled=_is_cancelled(run))
    if submission is None or step is NextStep.REST:
        return fate is Fate.RETURNING and not _is_cancelled(run)
    if step is NextStep.NOTE_CANCELLATION:
        run.write_submission(replace(submission, cancelled_at=time.time()))
        return False
    if folder is not None and job.resubmit(run, submission, Path(folder)):
        return True
    say("the job does not come back by itself; submitting the run again continues it")
    if outcome := run.read_outcome():
        words = f"{outcome.message}; its job does not come back, vmcjob resume goes on"
        run.write_outcome(replace(outcome, message=words))
    return False


def _is_taken_too_often(attempt: Attempt, fate: Fate) -> bool:
    """Whether a run whose job was taken away is not to go on by itself."""
    run, submission = attempt.run, attempt.run.read_submission()
    cause = cause_of_stop(attempt.reason, fate)
    if cause is None or submission is None or fate is Fate.CANCELLED or _is_cancelled(run):
        return False
    ended = try_again(run, submission, cause, attempt.retries)
    if ended is not None:
        run.write_outcome(ended)
    return ended is not None


def _wait_for_fate(job: BatchContext) -> Fate:
    """The fate of the job, as soon as the batch system knows; a job that ends is killed soon."""
    while (fate := job.fate()) is None:
        time.sleep(RETRY_S)
    return fate


def _requeue(job: BatchContext) -> Fate:
    """Ask for another attempt until the batch system agrees, or the job has ended.

    While the batch system does not answer, the job does not end.
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


def progress(run: RunDir) -> tuple[Activity, int] | None:
    """What has been committed, as far as the heartbeat tells; warm-up never is."""
    beat: Heartbeat | None = run.read_heartbeat()
    if beat is None or beat.phase in (Activity.STARTING, Activity.WARMUP):
        return None
    return beat.phase, beat.step
