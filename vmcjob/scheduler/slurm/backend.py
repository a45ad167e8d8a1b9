"""SLURM as a backend: one array for all runs that ask for the same, submitted through submitit."""

import io
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen

from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.plan import Plan, Task
from vmcjob.rundir import RunDir, Submission
from vmcjob.runs.status import Queue
from vmcjob.runs.usage import Spent
from vmcjob.scheduler.cancellation import cancel_jobs
from vmcjob.scheduler.companions import write_companions
from vmcjob.scheduler.contract import Answer, SubmissionOptions
from vmcjob.scheduler.receipt import Cancelled
from vmcjob.scheduler.slurm import commands, jobfiles, queue, use
from vmcjob.scheduler.slurm.arrays import Array, form_arrays, options_of
from vmcjob.scheduler.slurm.inquiry import ask_for_cluster
from vmcjob.scheduler.slurm.patience import MAX_UNANSWERED, Patience, explained, may_pass
from vmcjob.scheduler.slurm.preflight import SYSTEM, preflight
from vmcjob.scheduler.slurm.scancel import scancel
from vmcjob.scheduler.slurm.script import PYTHON, load_submitit, render, requests
from vmcjob.scheduler.slurm.wholenode import ALL_OF_A_NODE, asks_for_memory, gives_all_memory
from vmcjob.slurm.environment import clean, is_unclear


@dataclass(frozen=True)
class Slurm:
    """Runs as jobs of a cluster that is asked by SLURM's own programs."""

    name: str = jobfiles.NAME
    title: str = SYSTEM

    def is_available(self) -> bool:
        """Whether there is an sbatch."""
        return shutil.which("sbatch") is not None

    def announce(self, options: SubmissionOptions, plans: Sequence[Plan]) -> list[str]:
        """Whom the runs are given to, and whether a job would get all memory of its node."""
        where = ["slurm scheduler: as jobs of this cluster"]
        asked = [options_of(task, options) for plan in plans for task in plan.tasks]
        without = {one.first("partition") for one in asked if not asks_for_memory(one)}
        is_whole = self.is_available() and any(map(gives_all_memory, without))
        return [*where, ALL_OF_A_NODE] if is_whole else where

    def require(self, options: SubmissionOptions, plans: Sequence[Plan]) -> None:
        """Paths that SLURM can keep logs below, and options that it has."""
        _refuse_strange_paths(options.root)
        options.request.check()
        for plan in plans:
            for task in plan.tasks:
                options_of(task, options)

    def draft(self, options: SubmissionOptions, wanted: Mapping[RunDir, Task]) -> list[Array]:
        """One array for all that ask for the same."""
        return list(form_arrays(options, wanted))

    def is_other(self, run: RunDir, task: Task, options: SubmissionOptions) -> bool:
        """Whether the run's job was submitted with other options, as far as its script tells."""
        submission, path = run.read_submission(), jobfiles.find_script(run)
        if submission is None or path is None:
            return False
        n_tasks = 1 if submission.array_index is None else 2
        asked = options_of(task, options)
        parameters = asked.parameters(submission.job_name or "", path.parent, 1)
        now = render(parameters, path.parent, n_tasks)
        try:
            return requests(path.read_text("utf-8", "replace")) != requests(now)
        except OSError:
            return False

    def preflight(self, batches: Sequence[Array]) -> list[Answer]:
        """Whether and how many of the jobs it takes, and when the first could start."""
        return preflight(batches)

    def submit(self, batch: Array, after: str | None, now: float) -> "SlurmHandover":
        """Submit an array that waits for the job `after` and for the jobs of awaited runs."""
        for run_id, job_id in batch.awaited.items():
            if job_id == run_id:  # its answer was lost, and nobody has asked again
                raise SchedulerError(
                    f"{run_id}: its job has no id yet; submit its spec again first"
                )
        return SlurmHandover(replace(batch, after=after and after.partition("_")[0]), now)

    def adopt(self, run: RunDir, submission: Submission, job_id: str) -> None:
        """Name request and script after the job's id, which it waits for."""
        jobfiles.adopt(run, submission, job_id)

    def look(self, submissions: Mapping[RunDir, Submission]) -> Queue:
        """squeue by ids, and sacct for what squeue does not know."""
        return queue.look(submissions)

    def cancel(self, runs: Sequence[RunDir]) -> list[Cancelled]:
        """One scancel for many."""
        return cancel_jobs(runs, scancel)

    def find_logs(self, run: RunDir, rank: int | None) -> list[Path]:
        """What SLURM and submitit write: errors first, then output."""
        return jobfiles.find_logs(run, rank)

    def find_script(self, run: RunDir) -> Path | None:
        """What sbatch got."""
        return jobfiles.find_script(run)

    def ask_for_use(self, submissions: Mapping[RunDir, Submission]) -> Mapping[RunDir, Spent]:
        """The figures of sacct."""
        return use.ask_for_use(submissions)


class SlurmHandover:
    """An array that sbatch is about to be given; SLURM finds its jobs by their name."""

    processes: tuple[Popen[bytes], ...] = ()

    def __init__(self, array: Array, now: float) -> None:
        self._array = array
        self._is_sent = False
        cluster, origins = ask_for_cluster(), array.options.origins()
        self.records = {
            run: Submission(
                scheduler=jobfiles.NAME,
                cluster=cluster,
                job_id=None,
                submitted_at=now,
                job_name=array.job_name,
                array_index=index,
                number=array.number,
                place=place,
                asked_by=origins,
            )
            for run, index, place in array.places()
        }

    def complete(self) -> dict[RunDir, str]:
        """Call sbatch, again while SLURM is busy; every run has the id of its job.

        After each answer that may have been a yes, SLURM is asked whether it has the job.
        """
        array, self._is_sent = self._array, True
        if array.runs_per_job > 1:
            write_companions(array.folder, array.jobs)
        patience = Patience()
        while True:
            try:
                pairs = zip(array.jobs, _run_sbatch(array), strict=True)
                return {run: job_id for runs, job_id in pairs for run in runs}
            except SchedulerError as error:
                if not may_pass(error):
                    raise
                if found := self._find_taken(error, patience):
                    return found
            jobfiles.clear_requests(array.folder)

    def _find_taken(self, error: SchedulerError, patience: Patience) -> dict[RunDir, str]:
        """The jobs that SLURM took although its answer was lost; empty if SLURM took none.

        SLURM has to say so twice where it may still be at work on the request. Raises
        SchedulerError if SLURM does not answer: the records stay, and the next submission looks
        again.
        """
        n_looks, n_unanswered = (2 if is_unclear(str(error)) else 1), 0
        while n_looks:
            patience.wait(error)
            try:
                seen = queue.look(self.records)
            except SchedulerError:
                n_unanswered += 1
                if n_unanswered == MAX_UNANSWERED:
                    raise explained(error) from None
                continue
            ids = [job.job_id for job in seen.values() if job.job_id]
            if ids:
                return self._adopt(ids[0].partition("_")[0])
            n_looks -= 1
        return {}

    def _adopt(self, number: str) -> dict[RunDir, str]:
        """Give all jobs of a number what they wait for; the id of each run's job."""
        found: dict[RunDir, str] = {}
        for run, record in self.records.items():
            index = record.array_index
            found[run] = number if index is None else f"{number}_{index}"
            jobfiles.adopt(run, record, found[run])
        return found

    def abandon(self) -> bool:
        """Whether SLURM has no such job; it may have one if it cannot be asked."""
        if not self._is_sent:
            return True
        try:
            return not any(job.job_id for job in queue.look(self.records).values())
        except SchedulerError:
            return False


def _run_sbatch(array: Array) -> list[str]:
    """Have submitit pickle the supervisors and call sbatch; the id of every job."""
    slurm = load_submitit()
    try:
        array.folder.mkdir(parents=True, exist_ok=True)
        # submitit prints what sbatch says, and raises an error that says it again.
        with _clean_environment(), redirect_stderr(io.StringIO()):
            executor = slurm.SlurmExecutor(array.folder, python=shlex.join(PYTHON))
            executor.update_parameters(**array.parameters)
            with executor.batch():
                jobs = [executor.submit(supervisor) for supervisor in array.supervisors()]
    except OSError as error:
        raise RunDirError(f"{array.folder}: cannot be written: {error.strerror}") from None
    except slurm.utils.FailedJobError as error:
        raise SchedulerError(f"sbatch: {commands.words(str(error))}") from None
    except (slurm.utils.FailedSubmissionError, RuntimeError) as error:
        raise SchedulerError(f"sbatch: {error}") from None
    return [job.job_id for job in jobs]


@contextmanager
def _clean_environment() -> Iterator[None]:
    """Hide from sbatch, which submitit starts, what would silently replace the script's options."""
    kept = clean(os.environ)
    hidden = {name: value for name, value in os.environ.items() if name not in kept}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ |= hidden


def _refuse_strange_paths(root: Path) -> None:
    """sbatch reads its options line by line, and expands % in the names of its logs."""
    text = str(root)
    if not text.isprintable() or any(letter in text for letter in "%\\'\""):
        raise SchedulerError(
            f"{text!r}: SLURM cannot keep its logs below a path with control characters, quotes, "
            "backslashes or %; choose another --runs"
        )
