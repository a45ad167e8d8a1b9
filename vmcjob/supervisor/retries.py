"""How often a run has gone on by itself, and whether it may once more, each cause counted apart."""

import signal
from collections.abc import Mapping, Sequence
from enum import StrEnum

from vmcjob.protocol import OUT_OF_MEMORY
from vmcjob.protocol.batch import Fate
from vmcjob.resources import Retries, format_memory
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir, Submission

RETRY = "retry"  # events of a run's history
GAVE_UP = "gave up"

History = Sequence[Mapping[str, object]]


class Cause(StrEnum):
    """Why an attempt ended that another one follows; as the key of its limit is called."""

    PREEMPTION = "preemption"
    NODE_FAILURE = "node_failure"
    OUT_OF_MEMORY = "out_of_memory"


WORDS = {
    Cause.PREEMPTION: "its job was taken away",
    Cause.NODE_FAILURE: "its node failed, or its job was killed",
    Cause.OUT_OF_MEMORY: "it had too little memory",
}


def try_again(
    run: RunDir, submission: Submission, cause: Cause, limits: Retries, note: str = ""
) -> OutcomeRecord | None:
    """Note a retry, None if the run may have it; else how it has ended instead.

    Counted are those since the run was submitted by somebody. The history has the `note` too.
    """
    before = _count(run.read_attempts(), submission, cause)
    limit: int | None = getattr(limits, cause)
    if limit is None and cause is Cause.OUT_OF_MEMORY:
        limit = 0
    how, number = WORDS[cause], {"submission": submission.number}
    if limit is None or before < limit:
        of_how_many = "" if limit is None else f" of {limit}"
        run.append_attempt(
            RETRY, cause=cause, how=f"{before + 1}{of_how_many}: {how}{note}", **number
        )
        return None
    run.append_attempt(GAVE_UP, cause=cause, how=how, **number)
    times = "once" if before == 0 else f"{before + 1} times"
    message = f"{how} {times}, and retries.{cause} is {limit}; vmcjob resume goes on"
    is_stopped = cause is Cause.PREEMPTION
    return OutcomeRecord(
        outcome=Outcome.PREEMPTED if is_stopped else Outcome.FAILED, message=message
    )


def give_up_memory(run: RunDir, submission: Submission, asked_mb: int) -> OutcomeRecord:
    """Note that a run lacks memory with all that it may ask for, and how it has ended."""
    how, cause = WORDS[Cause.OUT_OF_MEMORY], Cause.OUT_OF_MEMORY
    run.append_attempt(GAVE_UP, cause=cause, how=how, submission=submission.number)
    message = (
        f"{how} with {format_memory(asked_mb)} per node, and retries.memory_ceiling allows no "
        "more; raise it, or use fewer sampler.walkers, and submit the spec again"
    )
    return OutcomeRecord(outcome=Outcome.FAILED, message=message)


def has_given_up(history: History, submission: Submission) -> bool:
    """Whether a run is not to be tried again, although its batch system brings its job back."""
    return any(
        line.get("event") == GAVE_UP and line.get("submission") == submission.number
        for line in history
    )


def cause_of_silence(history: History, submission: Submission) -> Cause | None:
    """Why the last attempt of this submission could not say how it ended; None if it did.

    One that was asked to stop had too little time left for it.
    """
    if submission.started_at is None:
        return None
    events = [line.get("event") for line in history]
    starts = [place for place, event in enumerate(events) if event == "start"]
    since = set(events[starts[-1] + 1 :]) if starts else {"end"}
    if {"end", "lost", RETRY} & since:
        return None
    return Cause.PREEMPTION if "stop" in since else Cause.NODE_FAILURE


def cause_of_stop(reason: str | None, fate: Fate) -> Cause | None:
    """Why a worker was stopped half-way; None if its wall time was over."""
    is_taken = fate is Fate.PREEMPTED or reason == signal.SIGTERM.name
    return Cause.PREEMPTION if is_taken else None


def is_out_of_memory(code: int, reason: str | None, outcome: OutcomeRecord | None) -> bool:
    """Whether a worker lacked memory: it says so, or the kernel has killed it."""
    if outcome is not None:
        return outcome.outcome is Outcome.FAILED and outcome.message == OUT_OF_MEMORY
    return code == -signal.SIGKILL and reason is None


def _count(history: History, submission: Submission, cause: Cause) -> int:
    """How often a run has gone on by itself for this cause."""
    wanted = (RETRY, cause, submission.number)
    return sum(
        (line.get("event"), line.get("cause"), line.get("submission")) == wanted for line in history
    )
