"""More host memory for a run that lacked it, in a new job: a requeue keeps the memory of a job."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from vmcjob.protocol.batch import BatchContext
from vmcjob.resources import ALL_MEMORY, Retries, format_memory, memory_mb
from vmcjob.rundir import RunDir, Submission


@dataclass(frozen=True)
class HostMemory:
    """What is pickled for a job that may be submitted again with more memory."""

    folder: str  # of its submission
    asked: str | None = None  # per node, as sbatch was told


@dataclass(frozen=True)
class Growth:
    """The memory per node of an attempt, and of the one that follows, in megabytes."""

    before: int
    after: int

    @property
    def is_possible(self) -> bool:
        """Whether the next attempt has more."""
        return self.after > self.before

    def __str__(self) -> str:
        return f"asks for {format_memory(self.after)} in place of {format_memory(self.before)}"


def find_growth(
    memory: HostMemory | None,
    limits: Retries,
    submission: Submission,
    given_mb: int | None,
) -> Growth | None:
    """The memory of the next attempt; None if it does not grow, or is not known.

    Args:
        memory: the memory that was asked for.
        limits: how memory grows.
        submission: of the run, with the memory of its last resubmission.
        given_mb: megabytes per node that the job has according to the batch system.
    """
    if memory is None or limits.memory_factor is None:
        return None
    if submission.memory_mb is not None:
        before = submission.memory_mb
    elif memory.asked not in (None, ALL_MEMORY):
        before = memory_mb(memory.asked)
    elif given_mb and memory.asked is None:
        before = given_mb
    else:
        return None
    after = math.ceil(before * limits.memory_factor)
    if limits.memory_ceiling is not None:
        after = max(before, min(after, memory_mb(limits.memory_ceiling)))
    return Growth(before, after)


def submit_larger(
    job: BatchContext, run: RunDir, submission: Submission, growth: Growth, folder: str
) -> bool:
    """Have the run go on in a new job with more memory; False if SLURM does not take it."""
    if job.resubmit(run, replace(submission, memory_mb=growth.after), Path(folder)):
        return True
    given = run.read_submission()
    if given is not None and given.job_id is not None:  # it has the job that it had before
        run.write_submission(replace(given, memory_mb=submission.memory_mb))
    return False
