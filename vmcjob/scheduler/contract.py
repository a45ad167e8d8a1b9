"""The contract of a backend, that is, a batch system or this machine, where runs are submitted.

A backend is one file or folder that implements this contract, and one line that registers it.
Deciding what to submit, making directories, locking and recording are done elsewhere for all
backends (`submission`). Inside a job, a backend is a `BatchContext`: its rank, the end of its time,
whether it was cancelled, and how it is requeued.

A job runs `supervisor.Supervisor(...).supervise(context)` for each of its runs, which starts the
worker and waits for its end; `slurm.arrays` is an example. A profile names a backend by its `name`.
`folders` and `cancellation` are shared by all backends. `tests/scheduler/test_conformance.py` tests
the contract, and `tests/scheduler/fake.py` is a complete backend in one file.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self, TypeVar

from vmcjob.errors import SchedulerError, VmcJobError
from vmcjob.plan import Plan, Task
from vmcjob.protocol.batch import BatchContext
from vmcjob.resources import Request
from vmcjob.rundir import RunDir, Submission
from vmcjob.runs.status import Queue
from vmcjob.runs.usage import Spent
from vmcjob.scheduler.receipt import Cancelled
from vmcjob.site import Site

__all__ = ["Answer", "Backend", "Batch", "BatchContext", "Cost", "Handover", "JobPreview"]


@dataclass(frozen=True)
class SubmissionOptions:
    """How and where runs are started, for all backends."""

    root: Path
    site: Site = field(default_factory=Site)
    request: Request = field(default_factory=Request)
    max_parallel: int | None = None  # runs at a time
    is_restart: bool = False  # from the first step, even if there are results
    profile: str = "the site profile"  # in words
    # A command that each job runs when its run has finished. The local backend ignores it.
    sequel: tuple[str, ...] = ()

    def absolute(self) -> "SubmissionOptions":
        """The options with absolute paths, independent of the current directory."""
        return replace(self, root=self.root.absolute())


@dataclass(frozen=True)
class Cost:
    """Device hours that are paid for; a node that is not shared costs all its GPUs and CPUs."""

    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    node_hours: float = 0.0
    files: int = 0
    is_exclusive: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        """The sum of two costs."""
        return Cost(
            self.gpu_hours + other.gpu_hours,
            self.cpu_hours + other.cpu_hours,
            self.node_hours + other.node_hours,
            self.files + other.files,
            self.is_exclusive or other.is_exclusive,
        )


@dataclass(frozen=True)
class JobPreview:
    """The input of a batch system, to be shown before submission."""

    job_name: str
    script: str
    n_jobs: int
    runs_per_job: int
    commands: Mapping[RunDir, tuple[str, ...]]  # command that starts each run
    cost: Cost
    gpu_sharing: str = ""  # how runs share a GPU; empty if each has its own


class Batch(Protocol):
    """Runs that a backend gets together; a value, without effects."""

    @property
    def job_name(self) -> str:
        """A unique name, which a dry run shows in advance."""
        ...

    @property
    def runs(self) -> tuple[RunDir, ...]:
        """The runs of the batch."""
        ...

    @property
    def n_jobs(self) -> int:
        """Number of jobs of the batch, as the batch system counts."""
        ...

    @property
    def after(self) -> str | None:
        """The name of the batch that has to end first, if there is one."""
        ...

    def first(self, n_jobs: int) -> Self:
        """The batch with only its first jobs."""
        ...

    def of(self, runs: tuple[RunDir, ...]) -> Self:
        """The batch with only these of its runs."""
        ...

    def preview(self) -> JobPreview | None:
        """The input of the batch system; None for a backend without one."""
        ...


BatchT = TypeVar("BatchT", bound=Batch)


class Handover(Protocol):
    """A batch that is about to be handed over: first its records, then the submission itself.

    The process may die between the two. So every record is written before a job can start.
    """

    @property
    def records(self) -> Mapping[RunDir, Submission]:
        """The record of each run, written before the job exists."""
        ...

    @property
    def processes(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Child processes that still write something when the runs have ended."""
        ...

    def complete(self) -> Mapping[RunDir, str]:
        """Submit; returns the job id of each run. SchedulerError or RunDirError if this fails."""
        ...

    def abandon(self) -> bool:
        """After a failure, end what was started; whether the batch was certainly not taken."""
        ...


@dataclass(frozen=True)
class Answer:
    """The answer of a batch system about a batch, before submission."""

    batch: Batch
    system: str = ""  # the system that answers
    n_jobs: int = 0  # number of its jobs that are taken now
    limit: str = ""  # the limit that forbids more, if any
    starts_at: float | None = None  # the first of them, seconds since the epoch; an estimate
    nodes: str = ""
    partition: str = ""
    note: str = ""  # the reason for not starting sooner
    error: VmcJobError | None = None  # the reason for never taking it

    @property
    def shortage(self) -> SchedulerError | None:
        """The error if the batch system takes only a part of the jobs; None if it takes all."""
        n_all = self.batch.n_jobs
        if self.n_jobs == n_all:
            return None
        some = f"takes {self.n_jobs} of {n_all} jobs" if self.n_jobs else "takes no more jobs"
        limit = f" ({self.limit})" if self.limit else ""
        return SchedulerError(
            f"{self.batch.job_name}: {self.system} {some} now{limit}; "
            "submit again when others have ended"
        )


class Backend(Protocol[BatchT]):
    """A batch system, or this machine, that works on runs.

    Job ids are strings that only the backend interprets. All times are seconds since the epoch.
    """

    @property
    def name(self) -> str:
        """The name in site profiles and in the record of a submission."""
        ...

    @property
    def title(self) -> str:
        """The name in sentences."""
        ...

    def is_available(self) -> bool:
        """Whether its programs are installed on this machine."""
        ...

    def announce(self, options: SubmissionOptions, plans: Sequence[Plan]) -> Sequence[str]:
        """Messages before a submission: where the runs go, and options without effect there."""
        ...

    def require(self, options: SubmissionOptions, plans: Sequence[Plan]) -> None:
        """SchedulerError or UsageError for options that are impossible here."""
        ...

    def draft(self, options: SubmissionOptions, wanted: Mapping[RunDir, Task]) -> Sequence[BatchT]:
        """The batches for these runs; writes nothing, and works without the backend's programs."""
        ...

    def is_other(self, run: RunDir, task: Task, options: SubmissionOptions) -> bool:
        """Whether the run's job was submitted with other options."""
        ...

    def preflight(self, batches: Sequence[BatchT]) -> Sequence[Answer]:
        """The answer about each batch, as if it came alone; SchedulerError without an answer."""
        ...

    def submit(self, batch: BatchT, after: str | None, now: float) -> Handover:
        """Begin to hand a batch over; `after` is the id of a job that has to end first."""
        ...

    def adopt(self, run: RunDir, submission: Submission, job_id: str) -> None:
        """Provide a job with its files, if it was taken while the answer was lost."""
        ...

    def look(self, submissions: Mapping[RunDir, Submission]) -> Queue:
        """The states of its jobs; unknown jobs have ended.

        SchedulerError if it cannot be asked.
        """
        ...

    def cancel(self, runs: Sequence[RunDir]) -> Sequence[Cancelled]:
        """Take runs out of the queue, or stop their workers at the next checkpoint."""
        ...

    def find_logs(self, run: RunDir, rank: int | None) -> Sequence[Path]:
        """Log files of the run's latest job, other than the workers' logs.

        NotFoundError if there are none yet, UsageError if there will be none.
        """
        ...

    def find_script(self, run: RunDir) -> Path | None:
        """The script of the run's latest job; None if none is kept."""
        ...

    def ask_for_use(self, submissions: Mapping[RunDir, Submission]) -> Mapping[RunDir, Spent]:
        """Resources used by the jobs, by its accounting; empty if it keeps none."""
        ...
