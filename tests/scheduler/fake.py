"""A batch system of a few lines, made known to vmcjob from here alone.

Its job ids are no numbers, it has no array jobs, and it needs no programs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import Popen

from vmcjob.errors import NotFoundError, SchedulerError
from vmcjob.plan import Plan, Task
from vmcjob.protocol.batch import Fate
from vmcjob.protocol.rank import ALONE, Rank, port_of
from vmcjob.rundir import RunDir, Submission
from vmcjob.runs.status import JobState, Queue, Stage
from vmcjob.runs.usage import Spent
from vmcjob.scheduler import Answer, Cancelled, Cost, JobPreview, SubmissionOptions
from vmcjob.scheduler.cancellation import Ending, cancel_jobs
from vmcjob.scheduler.folders import job_folder, make_job_name

NAME = "fake"


@dataclass
class FakeJob:
    """What the batch system knows of a job."""

    name: str
    job_id: str
    stage: Stage = Stage.WAITING
    n_restarts: int = 0
    is_cancelled: bool = False
    started_at: float = 0.0


@dataclass
class FakeSystem:
    """The batch system itself, with its whims."""

    jobs: dict[str, FakeJob] = field(default_factory=dict)
    is_refusing: bool = False
    is_deaf: bool = False  # takes a job, and its answer is lost
    end_time: float | None = None

    def find(self, name: str) -> FakeJob | None:
        """The job of this name."""
        return next((job for job in self.jobs.values() if job.name == name), None)


@dataclass(frozen=True)
class FakeBatch:
    """One run, one job."""

    root: Path
    job_name: str
    number: int
    runs: tuple[RunDir, ...]
    after: str | None = None

    @property
    def n_jobs(self) -> int:
        return len(self.runs)

    def first(self, n_jobs: int) -> "FakeBatch":
        return self.of(self.runs[:n_jobs])

    def of(self, runs: tuple[RunDir, ...]) -> "FakeBatch":
        return replace(self, runs=runs)

    def preview(self) -> JobPreview:
        commands = {run: ("vmcjob", "run", str(run.path)) for run in self.runs}
        return JobPreview(self.job_name, "please run it", self.n_jobs, 1, commands, Cost())


class FakeHandover:
    processes: tuple[Popen[bytes], ...] = ()

    def __init__(self, system: FakeSystem, batch: FakeBatch, now: float) -> None:
        self._system, self._batch = system, batch
        (run,) = batch.runs
        record = Submission(
            scheduler=NAME,
            job_id=None,
            submitted_at=now,
            job_name=batch.job_name,
            number=batch.number,
        )
        self.records = {run: record}

    def complete(self) -> dict[RunDir, str]:
        if self._system.is_refusing:
            raise SchedulerError("the fake batch system refuses")
        batch = self._batch
        job = FakeJob(batch.job_name, f"job.{batch.job_name}@fake")
        self._system.jobs[job.job_id] = job
        folder = job_folder(batch.root, NAME, batch.job_name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "script").write_text("please run it")
        if self._system.is_deaf:
            raise SchedulerError("the fake batch system does not answer")
        return dict.fromkeys(batch.runs, job.job_id)

    def abandon(self) -> bool:
        return self._system.find(self._batch.job_name) is None


@dataclass(frozen=True)
class Fake:
    """The batch system as vmcjob sees it."""

    system: FakeSystem
    name: str = NAME
    title: str = "the fake"

    def is_available(self) -> bool:
        return False  # never chosen without being named

    def announce(self, options: SubmissionOptions, plans: Sequence[Plan]) -> list[str]:
        del options, plans
        return ["fake scheduler: in this very process"]

    def require(self, options: SubmissionOptions, plans: Sequence[Plan]) -> None:
        pass

    def draft(self, options: SubmissionOptions, wanted: Mapping[RunDir, Task]) -> list[FakeBatch]:
        named = ((run, *make_job_name(task.name, [run])) for run, task in wanted.items())
        return [FakeBatch(options.root, name, number, (run,)) for run, name, number in named]

    def is_other(self, run: RunDir, task: Task, options: SubmissionOptions) -> bool:
        return False

    def preflight(self, batches: Sequence[FakeBatch]) -> list[Answer]:
        return [Answer(batch, self.title, batch.n_jobs) for batch in batches]

    def submit(self, batch: FakeBatch, after: str | None, now: float) -> FakeHandover:
        return FakeHandover(self.system, batch, now)

    def adopt(self, run: RunDir, submission: Submission, job_id: str) -> None:
        pass

    def look(self, submissions: Mapping[RunDir, Submission]) -> Queue:
        found = {run.path: self.system.find(s.job_name or "") for run, s in submissions.items()}
        return {path: _tell(job) for path, job in found.items()}

    def cancel(self, runs: Sequence[RunDir]) -> list[Cancelled]:
        return cancel_jobs(runs, self._end)

    def _end(self, job_ids: Sequence[str]) -> Ending:
        for job_id in job_ids:
            job = self.system.jobs[job_id]
            job.is_cancelled = True
            if job.stage is Stage.WAITING:
                job.stage = Stage.ENDED
        return [(None, list(job_ids))]

    def find_logs(self, run: RunDir, rank: int | None) -> list[Path]:
        path = self._folder(run) / "said"
        if not path.exists():
            raise NotFoundError(f"{run.path.name}: its job has not said anything yet")
        return [path]

    def find_script(self, run: RunDir) -> Path | None:
        path = self._folder(run) / "script"
        return path if path.exists() else None

    def ask_for_use(self, submissions: Mapping[RunDir, Submission]) -> Mapping[RunDir, Spent]:
        return {run: Spent(seconds=1.0) for run, s in submissions.items() if s.job_id}

    def _folder(self, run: RunDir) -> Path:
        submission = run.read_submission()
        assert submission is not None
        return job_folder(run.path.parent, NAME, submission.job_name or "")


@dataclass(frozen=True)
class FakeContext:
    """The batch system from within a job."""

    system: FakeSystem
    job: FakeJob
    index: int = 0
    count: int = 1

    @property
    def job_id(self) -> str:
        return self.job.job_id

    @property
    def attempt(self) -> str:
        return f"{self.job.job_id}.{self.job.n_restarts}"

    def rank(self) -> Rank:
        if self.count == 1:
            return ALONE
        return Rank(self.index, self.count, f"n1:{port_of(self.job.job_id)}")

    def end_time(self, patience_s: float) -> float | None:
        return self.system.end_time

    def memory_mb(self) -> int | None:
        return None

    def fate(self) -> Fate:
        return Fate.CANCELLED if self.job.is_cancelled else Fate.RUNNING

    def requeue(self) -> bool:
        if self.system.is_refusing:
            return False
        self.job.stage = Stage.WAITING
        self.job.n_restarts += 1
        return True

    def resubmit(self, run: RunDir, submission: Submission, folder: Path) -> bool:
        return False


def _tell(job: FakeJob | None) -> JobState:
    if job is None:
        return JobState(Stage.ENDED)
    began = job.started_at or time.time()
    return JobState(job.stage, job.job_id, "waits its turn", job.is_cancelled, began)
