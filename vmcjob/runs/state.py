"""The state of a run, judged from what was seen of it, for every command alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vmcjob.rundir import SHORT_OF_MEMORY, Heartbeat, Outcome, OutcomeRecord, Record, Submission

MAX_SKEW_S = 10.0  # between the clocks of a cluster's hosts
MAX_LAST_WORDS_S = 60.0  # from a cancellation to the end of the worker
STALE_S = 120.0  # a worker on another host that was silent for so long is taken for dead


class State(StrEnum):
    """What a run is doing, in the order of its life."""

    NEW = "NEW"
    QUEUED = "QUEUED"
    BLOCKED = "BLOCKED"  # it waits for a run that does not go on
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    NOT_KNOWN = "NOT KNOWN"  # whether its job lives, or how it ended
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    EXHAUSTED = "EXHAUSTED"  # it may not go on, for the budget of its submission is used up
    DIVERGED = "DIVERGED"
    FAILED = "FAILED"
    DEAD = "DEAD"

    @property
    def is_active(self) -> bool:
        """Whether something will still happen by itself."""
        return self in (State.QUEUED, State.RUNNING, State.STOPPING, State.NOT_KNOWN)

    @property
    def is_waiting(self) -> bool:
        """Whether its turn has not come yet, and somebody may still have it in a queue."""
        return self in (State.QUEUED, State.BLOCKED)


ENDINGS = {  # of a run that others wait for
    State.NEW: "nobody works on",
    State.CANCELLED: "was cancelled",
    State.PREEMPTED: "has stopped half-way",
    State.EXHAUSTED: "has used up its budget",
    State.DIVERGED: "has diverged",
    State.FAILED: "has failed",
    State.FINISHED: "has lost its results",
    State.DEAD: "is dead",
}
DO_WITHOUT = "vmcjob cancel {}, and submit one that does without it"
ADVICE = {
    State.DIVERGED: DO_WITHOUT,  # it begins to no avail
    State.EXHAUSTED: "raise budget.gpu_hours in its spec, submit that, then resume {}",
}


class Stage(StrEnum):
    """The stage of a job in a batch system."""

    WAITING = "waiting"
    ACTIVE = "active"
    ENDED = "ended"
    UNKNOWN = "unknown"  # it is another batch system's, which was not asked


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
    is_hopeless: bool = False  # it waits for a job that has not ended well, and never will
    is_forgotten: bool = False  # its queue does not have it any more
    ended_at: float | None = None  # as far as it was asked for


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
    is_worker_gone: bool  # seen to be, in a process table, by us or by its supervisor
    is_launcher_gone: bool
    last_sign: float  # of life of a worker, in seconds since the epoch; 0 without any
    job: JobState | None = None
    is_outcome_hidden: bool = False  # its name is listed, and this host cannot open the file yet


def judge(seen: Observation) -> State:
    """The state that follows from what was seen.

    A launcher of another host cannot be seen, and its run counts as queued: to call it dead
    would invite a second worker. `cancel` takes such a run back.
    """
    submission, outcome = seen.submission, seen.outcome
    if seen.is_outcome_hidden:
        return State.NOT_KNOWN
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
    if _is_disputed(seen, submission):
        return State.NOT_KNOWN if submission.cancelled_at is None else State.STOPPING
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


def _is_disputed(seen: Observation, submission: Submission) -> bool:
    """Whether nobody knows whether the run's job lives.

    Another cluster has it, or its job is over and its worker was heard of on another host since. A
    worker that has been silent for long is taken for dead then.
    """
    job, outcome, is_cancelled = seen.job, seen.outcome, submission.cancelled_at is not None
    if job is None:
        return False
    if job.stage is Stage.UNKNOWN:
        if outcome is None or _is_resumable(outcome):
            return not is_cancelled
        return not is_cancelled and not submission.has_come_to(outcome)
    if not seen.is_worker_alive or outcome is not None:
        return False
    return _outlives_job(seen, job, submission) or (job.is_forgotten and not is_cancelled)


def _outlives_job(seen: Observation, job: JobState, submission: Submission) -> bool:
    """Whether the worker was heard of long after its job had ended, on a node that SLURM lost."""
    if job.ended_at is not None:
        return seen.last_sign > job.ended_at + MAX_SKEW_S
    cancelled_at = submission.cancelled_at
    return cancelled_at is not None and seen.last_sign > cancelled_at + MAX_LAST_WORDS_S


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

    What becomes of a run that has stopped half-way, or failed, is known when its job has ended: it
    may have been cancelled, or come back because a node was lost.
    """
    outcome = seen.outcome
    has_ended = outcome is not None and outcome.time >= job_started_at
    if outcome is not None and has_ended and not _may_come_back(outcome):
        return State(outcome.outcome)
    is_ending = seen.job is not None and seen.job.is_ending
    if has_ended and not is_ending and waits_for_others(submission, outcome):
        return State.QUEUED
    if has_ended or is_ending or submission.cancelled_at is not None:
        return State.STOPPING
    if seen.is_worker_alive or (seen.job is not None and seen.job.is_suspended):
        return _at_work(seen)
    # What is on another host and silent may be dead, and is not said to be: its supervisor would
    # end the job, and a clock that is wrong makes the liveliest look so.
    has_supervisor = (submission.started_at or 0.0) >= job_started_at
    return State.DEAD if has_supervisor and seen.is_worker_gone else State.RUNNING


def waits_for_others(submission: Submission, outcome: OutcomeRecord | None) -> bool:
    """Whether a run that lacked memory waits until the other runs of its job have ended."""
    is_short = outcome is not None and outcome.message.startswith(SHORT_OF_MEMORY)
    return is_short and submission.place is not None and submission.cancelled_at is None


def _at_work(seen: Observation) -> State:
    """The state of a run whose worker is alive and has not said how it ended."""
    return State.STOPPING if seen.is_cancelled or seen.is_told_to_stop else State.RUNNING


def _is_here(seen: Observation) -> bool:
    """Whether the worker was seen in this machine's own process table."""
    return seen.heartbeat is not None and seen.heartbeat.process.is_alive() is True


def _may_come_back(outcome: OutcomeRecord) -> bool:
    """Whether the run's batch system may still start its job again, and to some avail."""
    return _is_resumable(outcome) or outcome.outcome is Outcome.FAILED


def _is_resumable(outcome: OutcomeRecord) -> bool:
    """Whether the run stopped half-way."""
    return outcome.outcome in (Outcome.PREEMPTED, Outcome.EXHAUSTED)
