"""Runs that share a job: which they are, and whether the job is needed without one of them."""

import json
from collections.abc import Sequence
from pathlib import Path

from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.rundir import RunDir, Submission
from vmcjob.runs.status import Queue, RunStatus, State, examine
from vmcjob.scheduler.folders import job_folder

COMPANIONS = "companions.json"
"""In the folder of a submission: the names of the runs of each job."""


def write_companions(folder: Path, jobs: Sequence[Sequence[RunDir]]) -> None:
    """Record which runs share a job."""
    text = json.dumps([[run.path.name for run in runs] for runs in jobs])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / COMPANIONS).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SchedulerError(f"{folder}: cannot be written: {error.strerror}") from None


def count_others_at_work(run: RunDir, submission: Submission, seen: Queue) -> int:
    """Number of other runs of the run's job that are wanted and have not ended."""
    job = seen.get(run.path)
    queue = {} if job is None else {other.path: job for other in _find(run, submission)}
    return sum(_is_at_work(other, submission, queue) for other in _find(run, submission))


def is_through(found: RunStatus, submission: Submission) -> bool:
    """Whether a run has ended for good, although its shared job may continue.

    A run that seems dead does not count: with a wrong clock, its worker may only look dead.
    """
    is_over = not found.state.is_active and found.state not in (State.DEAD, State.BLOCKED)
    return submission.place is not None and is_over


def _is_at_work(run: RunDir, submission: Submission, queue: Queue) -> bool:
    theirs = run.read_submission()
    if theirs is None or theirs.job_name != submission.job_name or theirs.cancelled_at:
        return False
    try:
        return examine(run, queue).state.is_active
    except RunDirError:  # an unreadable run is no reason to keep a job
        return False


def _find(run: RunDir, submission: Submission) -> list[RunDir]:
    """The other runs of the run's job; empty if it shares no job, or if this is unknown."""
    if submission.place is None:
        return []
    root = run.path.parent
    try:
        text = (
            job_folder(root, submission.scheduler, submission.job_name or "") / COMPANIONS
        ).read_text("utf-8")
        names = json.loads(text)[submission.array_index or 0]
    except (OSError, ValueError, LookupError):
        return []
    return [other for name in names if (other := RunDir(root / str(name))) != run]
