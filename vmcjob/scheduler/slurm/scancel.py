"""Ending jobs: one scancel for many."""

import re
from collections.abc import Sequence

from vmcjob.errors import SchedulerError
from vmcjob.scheduler.cancellation import Ending
from vmcjob.scheduler.slurm import commands

MAX_JOBS = 100  # that one scancel is told of
_REFUSED = re.compile(r"job id (\w+)")


def scancel(job_ids: Sequence[str]) -> Ending:
    """Tell SLURM to end jobs; those that it took, and those that it did not, with its words."""
    answers: Ending = []
    for start in range(0, len(job_ids), MAX_JOBS):
        batch = list(job_ids[start : start + MAX_JOBS])
        error, refused = _tell(batch)
        answers.append((None, [job_id for job_id in batch if job_id not in refused]))
        answers.append((error, refused))
    return answers


def _tell(batch: Sequence[str]) -> tuple[SchedulerError | None, list[str]]:
    """One call of scancel: its complaint, and the jobs that it is about."""
    try:
        done = commands.start(["scancel", *batch])
    except SchedulerError as error:
        return error, list(batch)
    if done.returncode == 0:
        return None, []
    words = commands.words(done.stderr) or f"exit {done.returncode}"
    named = [job_id for job_id in _REFUSED.findall(done.stderr) if job_id in batch]
    return SchedulerError(f"scancel: {words}"), named or list(batch)
