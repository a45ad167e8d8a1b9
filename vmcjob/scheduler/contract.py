"""What a batch system is to the rest of us: the contract of the side that submits.

A backend is one file or folder that keeps this contract, and one line that registers it. Deciding
what to submit, making directories, locking and recording are done for all of them elsewhere
(`submission`). Inside of a job, a backend is a `BatchContext`: its rank, when its time ends,
whether it was cancelled, how it comes back.

What runs in a job is `supervisor.Supervisor(...).supervise(context)` for each of its runs: it
starts the worker and sees to its end, as `slurm.arrays` shows. A profile names a backend by its
`name`. `folders` and `cancellation` have what all of them need. The contract as a program
is `tests/scheduler/test_conformance.py`, a whole backend in one file `tests/scheduler/fake.py`.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self, TypeVar

from vmcjob.errors import SchedulerError, VmcJobError
from vmcjob.plan import Plan, Task
from vmcjob.resources import Request
from vmcjob.rundir import RunDir, Submission
from vmcjob.scheduler.receipt import Cancelled
from vmcjob.site import Site
from vmcjob.status import Queue
from vmcjob.supervisor import BatchContext

__all__ = ["Answer", "Backend", "Batch", "BatchContext", "Cost", "Handover", "JobPreview"]


@dataclass(frozen=True)
class SubmissionOptions:
    """How and where runs are to be started, whoever starts them."""

    root: Path
    site: Site = field(default_factory=Site)
    request: Request = field(default_factory=Request)
    max_parallel: int | None = None  # runs at a time
    is_restart: bool = False  # from their first step, whatever they have

    def absolute(self) -> "SubmissionOptions":
        """The same wherever a process is."""
        return replace(self, root=self.root.absolute())


@dataclass(frozen=True)
class Cost:
    """What is paid for; of nodes that are shared with nobody, all their GPUs and CPUs are."""

    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    node_hours: float = 0.0
    files: int = 0
    is_exclusive: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        """Of both."""
        return Cost(
            self.gpu_hours + other.gpu_hours,
            self.cpu_hours + other.cpu_hours,
            self.node_hours + other.node_hours,
            self.files + other.files,
            self.is_exclusive or other.is_exclusive,
        )


@dataclass(frozen=True)
class JobPreview:
    """What a batch system would be given, to be shown before it is."""

    job_name: str
    script: str
    n_jobs: int
    runs_per_job: int
    commands: Mapping[RunDir, tuple[str, ...]]  # what would be started for each run
    cost: Cost


class Batch(Protocol):
    """Runs that a backend is given together; a value, that touches nothing."""

    @property
    def job_name(self) -> str:
        """A name that no other batch has, and that a dry run foretells."""
        ...

    @property
    def runs(self) -> tuple[RunDir, ...]:
        """Whose they are."""
        ...

    @property
    def n_jobs(self) -> int:
        """How many jobs it is to the batch system."""
        ...

    @property
    def after(self) -> str | None:
        """The name of the batch that has to end before, if there is one."""
        ...

    def first(self, n_jobs: int) -> Self:
        """So many of its jobs."""
        ...

    def of(self, runs: tuple[RunDir, ...]) -> Self:
        """With these of its runs only."""
        ...

    def preview(self) -> JobPreview | None:
        """What the batch system would be given; None where there is none."""
        ...


BatchT = TypeVar("BatchT", bound=Batch)


class Handover(Protocol):
    """A batch about to be handed over: what to write down first, then the handing over itself.

    Whoever writes the records may die half-way: no job may begin without a record of it.
    """

    @property
    def records(self) -> Mapping[RunDir, Submission]:
        """What each run is to know of its job before there is one."""
        ...

    @property
    def processes(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Processes of ours that have a last word to write when the runs have ended."""
        ...

    def complete(self) -> Mapping[RunDir, str]:
        """Hand over; the id of each run's job. SchedulerError or RunDirError if that fails."""
        ...

    def abandon(self) -> bool:
        """Whether nobody has the batch, after a failure; what was begun is ended."""
        ...


@dataclass(frozen=True)
class Answer:
    """What a batch system says to a batch before it is given it."""

    batch: Batch
    system: str = ""  # who says it
    n_jobs: int = 0  # so many of its jobs are taken now
    limit: str = ""  # what forbids more, if it forbids some
    starts_at: float | None = None  # the first of them, seconds since the epoch; an estimate
    nodes: str = ""
    partition: str = ""
    note: str = ""  # why it would not start sooner
    error: VmcJobError | None = None  # why it takes none, whenever asked

    @property
    def shortage(self) -> SchedulerError | None:
        """What to say where not all jobs are taken."""
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
    """Somebody who has runs worked on: a batch system, or this machine.

    Job ids are texts that only the backend reads. All times are seconds since the epoch.
    """

    @property
    def name(self) -> str:
        """As a site profile names it, and as a run's record of its submission does."""
        ...

    @property
    def title(self) -> str:
        """As sentences name it."""
        ...

    def is_available(self) -> bool:
        """Whether its programs are on this machine."""
        ...

    def announce(self, options: SubmissionOptions, plans: Sequence[Plan]) -> Sequence[str]:
        """What a user ought to know before: where the runs go, then what is not heeded there."""
        ...

    def require(self, options: SubmissionOptions, plans: Sequence[Plan]) -> None:
        """SchedulerError or UsageError for what cannot be asked for, needed now or not."""
        ...

    def draft(self, options: SubmissionOptions, wanted: Mapping[RunDir, Task]) -> Sequence[BatchT]:
        """What it would be given for these runs; writes nothing, and works without its programs."""
        ...

    def is_other(self, run: RunDir, task: Task, options: SubmissionOptions) -> bool:
        """Whether the run's job was submitted with other options than these."""
        ...

    def preflight(self, batches: Sequence[BatchT]) -> Sequence[Answer]:
        """What it says to each, as if it came alone; SchedulerError if it cannot be asked."""
        ...

    def submit(self, batch: BatchT, after: str | None, now: float) -> Handover:
        """Begin to hand a batch over; `after` is the id of a job that has to end before."""
        ...

    def adopt(self, run: RunDir, submission: Submission, job_id: str) -> None:
        """Give a job what it waits for that was taken while the answer was lost."""
        ...

    def look(self, submissions: Mapping[RunDir, Submission]) -> Queue:
        """What it knows about jobs of its own; those that it has forgotten have ended.

        SchedulerError if it cannot be asked.
        """
        ...

    def cancel(self, runs: Sequence[RunDir]) -> Sequence[Cancelled]:
        """Take runs out of the queue, or have their workers stop at the next checkpoint."""
        ...

    def find_logs(self, run: RunDir, rank: int | None) -> Sequence[Path]:
        """The files of what the run's latest job said besides its workers.

        NotFoundError if there is none yet, UsageError if there will be none.
        """
        ...

    def find_script(self, run: RunDir) -> Path | None:
        """What the run's latest job was described by; None if by nothing that is kept."""
        ...
