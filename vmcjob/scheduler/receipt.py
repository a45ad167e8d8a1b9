"""The result of a submission or cancellation: submitted, skipped and cancelled runs."""

import subprocess
from contextlib import suppress
from dataclasses import dataclass

from vmcjob.errors import VmcJobError
from vmcjob.rundir import RunDir
from vmcjob.runs.status import RunStatus, State

UNUSABLE = "its directory cannot be used"


@dataclass(frozen=True)
class Submitted:
    """A run that was submitted; without a job id in a dry run."""

    run: RunDir
    run_id: str
    job_id: str | None
    aside: RunDir | None = None  # where its results of before are, if it begins anew


@dataclass(frozen=True)
class Skipped:
    """A run that was left alone, with the reason."""

    run: RunDir
    run_id: str
    reason: str
    error: VmcJobError | None = None  # where it ought to have been submitted


@dataclass(frozen=True)
class Receipt:
    """The result of a submission, in the order of the plan."""

    submitted: tuple[Submitted, ...]
    skipped: tuple[Skipped, ...]
    launchers: tuple[subprocess.Popen[bytes], ...] = ()  # detached: nobody needs to wait for them

    def wait(self, patience_s: float = 30.0) -> None:
        """Wait for the launchers to end, soon after their last workers."""
        for launcher in self.launchers:
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(patience_s)


@dataclass(frozen=True)
class Cancelled:
    """The result of cancelling one run."""

    run: RunDir
    was_active: bool
    result: str
    error: VmcJobError | None = None  # why it goes on


def reason_to_wait(system: str) -> str:
    """The sentence about runs for which there is no room now."""
    return f"left for later: {system} takes no more jobs now"


def reason_to_skip(found: RunStatus, is_restart: bool = False) -> str | None:
    """The reason why a run in this state is not submitted or restarted; None if it is."""
    match found.state:
        case State.FINISHED | State.DIVERGED if is_restart:
            return None
        case State.FINISHED:
            return f"finished, but {found.message}" if found.message else "finished"
        case State.QUEUED:
            return "queued"
        case State.RUNNING:
            return "running"
        case State.STOPPING:
            return "still stopping; submit it again when it has stopped"
        case State.NOT_KNOWN:
            return f"not known: {found.message}"
        case State.DIVERGED:
            return "diverged; change the spec, for example to a smaller optimizer.learning_rate"
        case State.NEW | State.BLOCKED | State.CANCELLED | State.PREEMPTED | State.EXHAUSTED:
            return None  # whether there is something left of its budget is asked apart
        case State.FAILED | State.DEAD:
            return None
