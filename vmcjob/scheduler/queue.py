"""States of jobs from batch systems; each is asked once about all of its runs."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from vmcjob.errors import SchedulerError
from vmcjob.rundir import Outcome, RunDir, Submission
from vmcjob.runs.status import JobState, Queue, Stage
from vmcjob.scheduler.registry import backends

REFRESH_S = 10.0  # a cluster's controller is shared: between two looks of one watching process


def look(runs: Iterable[RunDir]) -> Queue:
    """The states of the runs that a batch system has and that are not settled.

    For failed runs, only jobs that still exist, or that were requeued by hand, matter.

    SchedulerError if a batch system cannot be asked. Batch systems that are not on this machine, or
    that this vmcjob does not know, give no states.
    """
    known = {run: run.read_submission() for run in _with_those_waited_for(runs)}
    asked = {run: s for run, s in known.items() if s and _is_open(run, s)}
    found: dict[Path, JobState] = {}
    for backend in backends():
        theirs = {run: s for run, s in asked.items() if s.scheduler == backend.name}
        if theirs:
            found |= backend.look(theirs)
    return {
        run.path: job
        for run, submission in asked.items()
        if (job := found.get(run.path))
        and (job.stage is not Stage.ENDED or run.read_end(submission) is not Outcome.FAILED)
    }


class Watch:
    """Looks repeatedly, but asks batch systems only every few seconds.

    If one cannot be asked, only run directories are used, and `error` has the reason.
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


def _with_those_waited_for(runs: Iterable[RunDir]) -> list[RunDir]:
    """The runs, and all runs that they wait for, which decide about them."""
    found = dict.fromkeys(runs)
    further = list(found)
    while further:
        run = further.pop()
        others = [run.beside(run_id) for run_id in run.open_waits]
        further += [other for other in others if other not in found and other.exists]
        found |= dict.fromkeys(further)
    return list(found)


def _is_open(run: RunDir, submission: Submission) -> bool:
    """Whether the batch system may know more about the run's job than the run directory."""
    return submission.is_job and run.read_end(submission) in (None, Outcome.FAILED)
