"""What is to be done when a worker has ended: decided from what happened, and from nothing else."""

import signal
from dataclasses import dataclass
from enum import Enum, auto

from vmcjob.protocol import BUDGET, DEADLINE, EXIT_CODES, STOP, STOPPED, WARNING, as_signal
from vmcjob.protocol.batch import Fate
from vmcjob.rundir import Outcome

MAX_REFUSALS = 3  # of a requeue, by a batch system that answers


@dataclass(frozen=True)
class Happened:
    """How the worker of an attempt ended, and under which circumstances."""

    returncode: int  # the worker's, as Popen has it
    outcome: Outcome | None = None  # what it said itself
    reason: str | None = None  # why it was asked to stop: "deadline", or a signal's name
    has_moved: bool = True  # whether a step was done
    is_cancelled: bool = False  # by its user
    lost_rank: str | None = None  # why a rank beside it was lost
    is_contained: bool = False  # in an image
    is_cut_short: bool = False  # by its batch system, before the time that it was given was over


@dataclass(frozen=True)
class Decision:
    """What follows."""

    exit_code: int  # for the batch system
    outcome: Outcome | None = None  # to be recorded, instead of what the worker said
    message: str = ""
    is_lost: bool = False  # the worker could not say how it ended: that is to be noted for it
    goes_on: bool = False  # half-way: it is to be seen to that there is another attempt


class NextStep(Enum):
    """How a run that stopped half-way goes on."""

    REST = auto()  # there is nothing to do
    NOTE_CANCELLATION = auto()
    RESUBMIT = auto()  # its job does not come back


def decide(happened: Happened) -> Decision:
    """What follows from a worker's end."""
    code, outcome, reason = as_signal(happened.returncode), happened.outcome, happened.reason
    if code < 0 and outcome is not None and outcome in (Outcome.FINISHED, Outcome.PREEMPTED):
        code = EXIT_CODES[outcome]  # the signal came after its last word
    found, words = None, ""
    if code < 0 and outcome is None:
        if happened.lost_rank:
            return Decision(-code, Outcome.FAILED, happened.lost_rank)
        if reason and code in (-STOP, -signal.SIGTERM):
            code, found = STOPPED, Outcome.PREEMPTED
            words = f"stopped by {reason} before it began; continues where it stopped"
    if _has_lost_image(happened, code):
        code, found = STOPPED, Outcome.PREEMPTED
        words = f"stopped by {reason}, and its image with it; continues from its last commit"
    if code != STOPPED:
        return Decision(abs(code), is_lost=True)
    if reason == BUDGET and not happened.is_cancelled:
        words = "its submission has used all GPU hours that its budget.gpu_hours allows; raise "
        words += "that in its spec and submit it again"
        return Decision(STOPPED, Outcome.EXHAUSTED, words)
    is_ended = happened.is_cancelled or happened.is_cut_short
    if reason == DEADLINE and not happened.has_moved and not is_ended:
        words = "the wall time ended before a single step was done; ask for more (-t)"
        return Decision(EXIT_CODES[Outcome.FAILED], Outcome.FAILED, words)
    goes_on = reason is not None and not happened.is_cancelled
    return Decision(STOPPED, found, words, goes_on=goes_on)


def _has_lost_image(happened: Happened, code: int) -> bool:
    """Whether the worker's files vanished, which looks like any other fault.

    SLURM may send SIGTERM to all processes of a job, and to that which mounts the image. Who failed
    for another reason will do so again.
    """
    is_terminated = happened.is_contained and happened.reason == signal.SIGTERM.name
    is_fault = happened.outcome in (None, Outcome.FAILED)
    return is_terminated and is_fault and code not in (0, STOPPED, -signal.SIGKILL)


def has_to_ask(reason: str | None) -> bool:
    """Whether the batch system has to be asked about the fate of the job.

    SIGTERM has many reasons, and a job that began after SIGTERM finds that its time is over soon.
    """
    return reason in (signal.SIGTERM.name, DEADLINE)


def is_cut_short(fate: Fate | None) -> bool:
    """Whether a job's end has come before that of the time that it was given."""
    return fate in (Fate.PREEMPTED, Fate.RETURNING, Fate.CANCELLED)


def has_to_requeue(reason: str | None, fate: Fate) -> bool:
    """Whether the job would not come back by itself.

    A preempted job that just ends, be it in its grace time, would not; and one that is ended for
    good, by preemption or at a deadline, is taken back by SLURM when it is asked to. A SIGTERM that
    SLURM knows nothing of is taken for a preemption: a controller that was killed has forgotten
    what it did in its last seconds.
    """
    if has_to_ask(reason) and fate is Fate.RUNNING:
        return True
    return fate in (Fate.PREEMPTED, Fate.LOST) or reason == WARNING.name


def is_answered(fate: Fate | None, n_refusals: int) -> bool:
    """Whether there is no use in asking for another attempt again; None: nobody has answered."""
    is_over = fate in (Fate.RETURNING, Fate.CANCELLED)
    return is_over or (fate is not None and n_refusals >= MAX_REFUSALS)


def next_step(fate: Fate, *, is_cancelled: bool) -> NextStep:
    """What is left to do when the batch system has said what becomes of the job."""
    if fate is Fate.RETURNING or is_cancelled:
        return NextStep.REST
    return NextStep.NOTE_CANCELLATION if fate is Fate.CANCELLED else NextStep.RESUBMIT
