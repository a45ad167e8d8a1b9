"""Runs that go to SLURM together: one array for all that ask for the same."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmcjob.container import Image, find_image, refuse_unbindable
from vmcjob.errors import SchedulerError
from vmcjob.plan import Task
from vmcjob.rundir import RunDir
from vmcjob.scheduler import commands
from vmcjob.scheduler.jobfiles import job_folder
from vmcjob.scheduler.local import python_command
from vmcjob.scheduler.script import Options, render
from vmcjob.site import Site
from vmcjob.supervisor import Pack, Share, Supervisor

MOST_FILES = 300  # of one finished run
DEFAULT_ARRAY_SIZE = 1001  # SLURM's own, when there is nobody to ask
_MAX_ARRAY = re.compile(r"^MaxArraySize\s*=\s*(\d+)", re.MULTILINE)


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

    @property
    def parameters(self) -> dict[str, Any]:  # submitit's words
        found = self.options.parameters(self.job_name, self.folder, self.max_parallel)
        if self.after is not None:
            further = found["additional_parameters"]
            wishes = [
                wish for wish in (further.get("dependency"), f"afterany:{self.after}") if wish
            ]
            found["additional_parameters"] = further | {"dependency": ",".join(wishes)}
        return found

    @property
    def script(self) -> str:
        """What sbatch will be given."""
        return render(self.parameters, self.folder, [sys.executable], self.n_jobs)

    @property
    def cost(self) -> "Cost":
        """The most that it can cost: every job taking its whole wall time, once."""
        options = self.options
        node_hours = self.n_jobs * options.resources.nodes * options.wall_time_s / 3600
        return Cost(
            gpu_hours=node_hours * options.gpus(),
            cpu_hours=node_hours * options.cpus(),
            node_hours=node_hours,
            files=MOST_FILES * len(self.runs),
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
        )

    def command(self, run: RunDir) -> tuple[str, ...]:
        """What starts the worker of a run on its compute host."""
        if self.image is not None:
            return self.image.command(run, self.options.gpus())
        return (*python_command(), "run", str(run.path))


def form_arrays(
    root: Path,
    wanted: Mapping[RunDir, tuple[Task, Options]],
    site: Site,
    max_parallel: int | None,
) -> Iterator[Array]:
    """Runs that ask for the same go together, as many as SLURM takes in one array."""
    groups: dict[tuple[Options, Image | None], list[RunDir]] = {}
    for run, (task, options) in wanted.items():
        image = find_image(task.spec.container, site.container)
        if image is not None:
            refuse_unbindable(run.path)
        groups.setdefault((options, image), []).append(run)
    largest = _largest_array() if len(wanted) > 1 else 1
    chunks: list[tuple[Options, Image | None, int, tuple[RunDir, ...]]] = []
    for (options, image), runs in groups.items():
        per_job = options.runs_per_job(max_parallel)
        chunks += ((options, image, per_job, part) for part in _chunks(runs, largest * per_job))
    sizes = [(math.ceil(len(runs) / per_job), per_job) for _, _, per_job, runs in chunks]
    n_rows = _rows(sizes, max_parallel)
    names: list[str] = []
    for (options, image, per_job, runs), share in zip(
        chunks, _shares(sizes, max_parallel), strict=True
    ):
        number = 1 + max(_number(run) for run in runs)
        name = _job_name(wanted[runs[0]][0].name, runs, number)
        folder = job_folder(root, name)
        after = names[-n_rows] if n_rows and len(names) >= n_rows else None
        yield Array(name, number, folder, runs, options, share, image, after, per_job)
        names.append(name)


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


def _number(run: RunDir) -> int:
    """How many times SLURM was given the run, as far as anybody knows."""
    submissions = [known.read_submission() for known in (run, *run.earlier)]
    return max((submission.number for submission in submissions if submission), default=0)


def _job_name(name: str, runs: Sequence[RunDir], number: int) -> str:
    """A name that no other submission has, and that a dry run foretells."""
    identity = json.dumps([number, *(str(run.path) for run in runs)])
    return f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def _largest_array() -> int:
    try:
        text = commands.call("scontrol", "show", "config")
    except SchedulerError:
        text = ""
    found = _MAX_ARRAY.search(text)
    return max(1, int(found[1]) - 1 if found else DEFAULT_ARRAY_SIZE - 1)
