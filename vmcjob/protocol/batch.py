"""What a batch system is to a job of its own: the contract of the side that runs."""

import sys
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from vmcjob.protocol.rank import Rank
from vmcjob.rundir import RunDir, Submission


class Fate(Enum):
    """What becomes of an attempt of a job."""

    RUNNING = auto()  # nothing, as far as the batch system knows
    PREEMPTED = auto()  # its place is taken, at once or after a grace time
    RETURNING = auto()  # the batch system has put the job back into the queue
    CANCELLED = auto()  # somebody has ended it
    LOST = auto()  # its time is over, its node has failed, or nobody knows it any more


class BatchContext(Protocol):
    """The job that this process belongs to, as its batch system sees it."""

    @property
    def job_id(self) -> str:
        """The id of the job, as people write it."""
        ...

    @property
    def attempt(self) -> str:
        """This attempt of the job: a batch system may start it several times."""
        ...

    def rank(self) -> Rank:
        """Which of the job's processes this is; SchedulerError if nobody says."""
        ...

    def end_time(self, patience_s: float) -> float | None:
        """When the job's time ends, in seconds since the epoch; infinity if it never does.

        None if nobody says within `patience_s`.
        """
        ...

    def memory_mb(self) -> int | None:
        """Megabytes of memory per node; None if the batch system does not say."""
        ...

    def fate(self) -> Fate | None:
        """What the batch system has in mind for this attempt; None if it does not say."""
        ...

    def requeue(self) -> bool:
        """Ask for another attempt of this job alone; whether there will be one."""
        ...

    def resubmit(self, run: RunDir, submission: Submission, folder: Path) -> bool:
        """Submit the run once more from within, where there will be no other attempt.

        `folder` is that of the submission.
        """
        ...


def say(text: str) -> None:
    """Talk, to the batch system's own log of the job."""
    sys.stderr.write(f"vmcjob: {text}\n")
    sys.stderr.flush()
