"""Runs that go to SLURM together: one array for all that ask for the same."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmcjob.apptainer.container import Image, find_image, refuse_unbindable
from vmcjob.errors import SchedulerError
from vmcjob.plan import Task
from vmcjob.rundir import RunDir
from vmcjob.scheduler.chain import waits_of
from vmcjob.scheduler.command import python_command
from vmcjob.scheduler.contract import Cost, JobPreview, SubmissionOptions
from vmcjob.scheduler.folders import job_folder, make_job_name
from vmcjob.scheduler.slurm import commands, mps
from vmcjob.scheduler.slurm.jobfiles import NAME
from vmcjob.scheduler.slurm.script import Options, render
from vmcjob.spec.size import MAX_FILES
from vmcjob.supervisor import HostMemory, Pack, Share, Supervisor

DEFAULT_ARRAY_SIZE = 1001  # SLURM's own, when there is nobody to ask
_MAX_ARRAY = re.compile(r"^MaxArraySize\s*=\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Array:
    """Runs that one sbatch submits: an array, or a plain job if there is only one."""

    job_name: str
    number: int
    folder: Path
    runs: tuple[RunDir, ...]
    options: Options
    max_parallel: int  # jobs
    image: Image | None
    after: str | None = None  # what has to end before: a job's number, or, until it has one, a name
    runs_per_job: int = 1
    notify: str | None = None  # a command that is told of ends
    waits_for: tuple[str, ...] = ()  # runs that have to finish before
    sequel: tuple[str, ...] = ()  # a command to run after each finished run

    @property
    def n_jobs(self) -> int:
        """How many jobs it is to SLURM, which counts every element of an array."""
        return len(self.jobs)

    @property
    def jobs(self) -> tuple[tuple[RunDir, ...], ...]:
        """The runs of each job."""
        return tuple(_chunks(self.runs, self.runs_per_job))

    def places(self) -> Iterator[tuple[RunDir, int | None, int | None]]:
        """Each run, its job's index in the array, and its place in the job; None where alone."""
        for index, runs in enumerate(self.jobs):
            for place, run in enumerate(runs):
                yield (
                    run,
                    index if self.n_jobs > 1 else None,
                    place if self.runs_per_job > 1 else None,
                )

    def first(self, n_jobs: int) -> "Array":
        """So many of its jobs."""
        runs = self.runs[: n_jobs * self.runs_per_job]
        return replace(self, runs=runs, max_parallel=min(self.max_parallel, n_jobs))

    def of(self, runs: tuple[RunDir, ...]) -> "Array":
        """The array with only these of its runs."""
        return replace(self, runs=runs)

    def preview(self) -> JobPreview:
        """What sbatch will be given, and what will be started."""
        commands = {run: self.command(run) for run in self.runs}
        of_job = self.job_name, self.script, self.n_jobs, self.runs_per_job
        return JobPreview(*of_job, commands, self.cost, self.gpu_sharing)

    @property
    def gpu_sharing(self) -> str:
        """How the runs of a job share a GPU; empty if each run has its own."""
        has_mps = self.options.site.mps
        return mps.sharing(self.options.gpus(), self.runs_per_job, has_mps=has_mps)

    @property
    def parameters(self) -> dict[str, Any]:  # submitit's words
        found = self.options.parameters(self.job_name, self.folder, self.max_parallel)
        if self.gpu_sharing == mps.MPS:
            found["setup"] = [*found["setup"], *mps.SETUP]
        further = found["additional_parameters"]
        ours = [f"afterok:{job_id}" for job_id in self.awaited.values()]
        wishes = [further.get("dependency"), self.after and f"afterany:{self.after}", *ours]
        if wanted := [wish for wish in wishes if wish]:
            found["additional_parameters"] = further | {"dependency": ",".join(wanted)}
        return found

    @property
    def awaited(self) -> dict[str, str]:
        """The jobs of the runs that have to finish before; of one without a job, its own id."""
        found: dict[str, str] = {}
        for other in map(self.runs[0].beside, self.waits_for):
            if not other.can_be_begun_with:
                theirs = other.read_submission()
                found[other.path.name] = (theirs and theirs.job_id) or other.path.name
        return found

    @property
    def script(self) -> str:
        """What sbatch will be given."""
        return render(self.parameters, self.folder, self.n_jobs)

    @property
    def cost(self) -> Cost:
        """The most that it can cost: every job taking its whole wall time, once."""
        options = self.options
        node_hours = self.n_jobs * options.resources.nodes * options.wall_time_s / 3600
        return Cost(
            gpu_hours=node_hours * options.gpus(),
            cpu_hours=node_hours * options.cpus(),
            node_hours=node_hours,
            files=MAX_FILES * len(self.runs),
            is_exclusive=options.is_exclusive,
        )

    def supervisors(self) -> list[Supervisor | Pack]:
        """What each job does."""
        if self.runs_per_job == 1:
            return [self._supervisor(run) for run in self.runs]
        shares = [Share(place, self.runs_per_job) for place in range(self.runs_per_job)]
        return [Pack(tuple(map(self._supervisor, runs, shares))) for runs in self.jobs]

    def _supervisor(self, run: RunDir, share: Share | None = None) -> Supervisor:
        """What looks after a run's worker."""
        image = self.image
        comes_back = self.options.site.auto_resume and share is None
        return Supervisor(
            str(run.path),
            self.job_name,
            self.command(run),
            self.options.spare_s,
            image=str(image.path) if image else None,
            image_sha256=image.digest() if image else "",
            has_gpus=self.options.gpus() > 0,
            cache=str(image.cache) if image and image.cache else None,
            folder=str(self.folder) if comes_back else None,
            share=share,
            notify=self.notify,
            retries=self.options.retries,
            memory=self._memory if share is None else None,
            sequel=self.sequel,
        )

    @property
    def _memory(self) -> HostMemory | None:
        """What a new job starts from that asks for more memory; None where none is to."""
        if self.options.retries.memory_factor is None:
            return None
        return HostMemory(str(self.folder), self.options.first("mem"))

    def command(self, run: RunDir) -> tuple[str, ...]:
        """What starts the worker of a run on its compute host."""
        if self.image is not None:
            return self.image.command(run, self.options.gpus())
        return (*python_command(), "run", str(run.path))


def form_arrays(submission: SubmissionOptions, wanted: Mapping[RunDir, Task]) -> Iterator[Array]:
    """Runs that ask for the same go together, as many as SLURM takes in one array."""
    max_parallel = submission.max_parallel
    groups: dict[tuple[Options, Image | None, tuple[str, ...]], list[RunDir]] = {}
    for run, task in wanted.items():
        options = options_of(task, submission)
        image = find_image(task.spec.container, submission.site.container)
        if image is not None:
            refuse_unbindable(run.path)
        groups.setdefault((options, image, _open_waits(run, task)), []).append(run)
    largest = _largest_array() if len(wanted) > 1 else 1
    chunks: list[tuple[Options, Image | None, tuple[str, ...], int, tuple[RunDir, ...]]] = []
    for (options, image, waits), runs in groups.items():
        per_job = options.runs_per_job(max_parallel)
        parts = _chunks(runs, largest * per_job)
        chunks += ((options, image, waits, per_job, part) for part in parts)
    sizes = [(math.ceil(len(runs) / per_job), per_job) for *_, per_job, runs in chunks]
    n_rows = _rows(sizes, max_parallel)
    names: list[str] = []
    for (options, image, waits, per_job, runs), share in zip(
        chunks, _shares(sizes, max_parallel), strict=True
    ):
        name, number = make_job_name(wanted[runs[0]].name, runs)
        folder = job_folder(submission.root, NAME, name)
        after = names[-n_rows] if n_rows and len(names) >= n_rows else None
        notify = submission.site.notify
        of_all = after, per_job, notify, waits, submission.sequel
        yield Array(name, number, folder, runs, options, share, image, *of_all)
        names.append(name)


def _open_waits(run: RunDir, task: Task) -> tuple[str, ...]:
    """The runs that a run needs and that have not finished: a job waits for the jobs of these."""
    waits = waits_of(run, task)
    return tuple(run_id for run_id in waits if not run.beside(run_id).can_be_begun_with)


def _rows(sizes: Sequence[tuple[int, int]], max_parallel: int | None) -> int | None:
    """In how many rows arrays go one after the other, where they cannot all run at a time."""
    of_a_job = [per_job for _, per_job in sizes]
    if max_parallel is None or sum(of_a_job) <= max_parallel:
        return None
    return max_parallel // max(of_a_job)


def _shares(sizes: Sequence[tuple[int, int]], max_parallel: int | None) -> list[int]:
    """How many jobs of each array may run at a time; its size is jobs, and runs in each.

    Arrays know nothing of each other, so they share out what may run in all, one by one.
    """
    if max_parallel is None:
        return [n_jobs for n_jobs, _ in sizes]
    shares = [1] * len(sizes)
    room = max_parallel - sum(per_job for _, per_job in sizes)
    is_growing = True
    while is_growing:
        is_growing = False
        for index, (n_jobs, per_job) in enumerate(sizes):
            if shares[index] < n_jobs and per_job <= room:
                shares[index] += 1
                room -= per_job
                is_growing = True
    return shares


def _chunks(runs: Sequence[RunDir], length: int) -> Iterator[tuple[RunDir, ...]]:
    for start in range(0, len(runs), length):
        yield tuple(runs[start : start + length])


def options_of(task: Task, submission: SubmissionOptions) -> Options:
    """What a task asks for; SchedulerError for what cannot be asked, whether submitted or not."""
    site = submission.site
    retries = task.spec.retries.over(site.retries)
    spec, flags = task.spec.resources, submission.request
    options = Options(spec, flags, site.slurm, retries, submission.profile)
    options.extra()
    options.check_growth()
    return options


def asked_gpus(task: Task, submission: SubmissionOptions) -> tuple[int, str | None]:
    """GPUs per node of a task's job, and the gres that asks for them in place of `gpus`."""
    options = options_of(task, submission)
    return options.gpus(), options.first("gres")


def _largest_array() -> int:
    try:
        text = commands.call("scontrol", "show", "config")
    except SchedulerError:
        text = ""
    found = _MAX_ARRAY.search(text)
    return max(1, int(found[1]) - 1 if found else DEFAULT_ARRAY_SIZE - 1)
