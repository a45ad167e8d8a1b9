"""What batch systems say about runs: each is asked once about all that it was given."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from vmcjob.errors import SchedulerError
from vmcjob.rundir import Outcome, RunDir, Submission
from vmcjob.scheduler.registry import backends
from vmcjob.status import JobState, Queue, Stage

REFRESH_S = 10.0  # a cluster's controller is shared: between two looks of one watching process


def look(runs: Iterable[RunDir]) -> Queue:
    """What is known about those of the runs that a batch system was given and are not settled.

    Of those that have failed only what matters then: that somebody has put a job back.

    SchedulerError if one cannot be asked. Of a batch system that is not of this machine, or of
    this vmcjob, nothing is known.
    """
    asked = {run: submission for run in runs if (submission := _open_submission(run))}
    found: dict[Path, JobState] = {}
    for backend in backends():
        theirs = {run: s for run, s in asked.items() if s.scheduler == backend.name}
        if theirs:
            found |= backend.look(theirs)
    return {
        run.path: job
        for run, submission in asked.items()
        if (job := found.get(run.path))
        and (job.stage is Stage.WAITING or run.read_end(submission) is not Outcome.FAILED)
    }


class Watch:
    """Looks again and again, but asks batch systems only every few seconds.

    When one cannot be asked, what the run directories say has to do; `error` tells.
    """

    def __init__(self) -> None:
        self.error: SchedulerError | None = None
        self._seen: Queue = {}
        self._asked_at = float("-inf")

    def look(self, runs: Sequence[RunDir]) -> Queue:
        """The latest answer, or a new one."""
        if time.monotonic() - self._asked_at >= REFRESH_S:
            self._asked_at = time.monotonic()
            try:
                self._seen, self.error = look(runs), None
            except SchedulerError as error:
                self._seen, self.error = {}, error
        return self._seen


def _open_submission(run: RunDir) -> Submission | None:
    """The run's job, if its batch system may still know something that the run does not."""
    submission = run.read_submission()
    if submission is None or not submission.is_job:
        return None
    return submission if run.read_end(submission) in (None, Outcome.FAILED) else None
