"""Runs as SLURM jobs: one array for all runs that ask for the same, submitted through submitit."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vmcjob.errors import RunDirError, SchedulerError, VmcJobError
from vmcjob.plan import Plan, Task
from vmcjob.resources import Request
from vmcjob.rundir import RunDir, Submission
from vmcjob.scheduler import commands, queue
from vmcjob.scheduler.arrays import Array, form_arrays
from vmcjob.scheduler.companions import is_through, write_companions
from vmcjob.scheduler.jobfiles import adopt, find_script
from vmcjob.scheduler.local import queue_lock
from vmcjob.scheduler.preflight import ask, preflight
from vmcjob.scheduler.receipt import (
    LATER,
    UNUSABLE,
    Receipt,
    Skipped,
    Submitted,
    reason_to_skip,
)
from vmcjob.scheduler.records import create_run, distinct, make_record, prepare
from vmcjob.scheduler.script import Options, load_submitit, render, requests
from vmcjob.site import Site
from vmcjob.slurm_environment import clean
from vmcjob.status import Queue, Stage, State, examine

WITH_OTHERS = "with other options, which it keeps; vmcjob cancel it first to change them"


@dataclass(frozen=True)
class Draft:
    """What a submission would do now."""

    receipt: Receipt
    arrays: tuple[Array, ...]


def draft(
    root: Path,
    plans: Sequence[Plan],
    site: Site,
    flags: Request,
    max_parallel: int | None,
    *,
    is_anew: bool = False,
) -> Draft:
    """Look at everything and decide; writes nothing, and works without SLURM."""
    root = root.absolute()
    _refuse_strange_paths(root)
    flags.check()
    tasks = {RunDir(root / run_id): planned for run_id, planned in distinct(plans).items()}
    options = {run: _options(task, site, flags) for run, (_, task) in tasks.items()}
    seen = queue.look([run for run in tasks if run.exists])
    submitted: list[Submitted] = []
    skipped: list[Skipped] = []
    for run, (source, task) in tasks.items():
        reason = None
        try:
            if run.exists:
                run.require(make_record(source, task))
                reason = _reason_to_skip(run, seen, options[run], is_anew)
        except RunDirError as error:
            skipped.append(Skipped(run, run.path.name, UNUSABLE, error))
            continue
        if reason is None:
            submitted.append(Submitted(run, run.path.name, None))
        else:
            skipped.append(Skipped(run, run.path.name, reason))
    wanted = {item.run: (tasks[item.run][1], options[item.run]) for item in submitted}
    arrays = tuple(form_arrays(root, wanted, site, max_parallel))
    return Draft(Receipt(tuple(submitted), tuple(skipped)), arrays)


def submit(
    root: Path,
    plans: Sequence[Plan],
    site: Site,
    flags: Request,
    max_parallel: int | None,
    *,
    is_anew: bool = False,
) -> Receipt:
    """Give SLURM what is not finished, running or queued; each run is recorded before its job is.

    A crash between the two leaves a run whose job is found by its name, or, if SLURM has never
    seen it, a run that the next submission takes up.
    """
    root = root.absolute()
    preflight(draft(root, plans, site, flags, max_parallel, is_anew=is_anew).arrays)
    tasks = distinct(plans)
    for run_id, (source, task) in tasks.items():
        if not RunDir(root / run_id).exists:
            create_run(root, source, task)
    with queue_lock(root):
        _adopt_jobs([RunDir(root / run_id) for run_id in tasks])
        planned = draft(root, plans, site, flags, max_parallel, is_anew=is_anew)
        done = _Progress(tasks, is_anew)
        for array in planned.arrays:
            try:
                done.send(array)
            except (SchedulerError, RunDirError) as error:
                if not done.job_ids:
                    raise
                done.leave(array.runs, LATER, error)
    submitted = tuple(
        replace(item, job_id=done.job_ids[item.run], aside=done.aside[item.run])
        for item in planned.receipt.submitted
        if item.run in done.job_ids
    )
    return Receipt(submitted, (*planned.receipt.skipped, *done.behind))


class _Progress:
    """What has become of the arrays of one submission so far."""

    def __init__(self, tasks: Mapping[str, tuple[str, Task]], is_anew: bool) -> None:
        self.job_ids: dict[RunDir, str] = {}
        self.aside: dict[RunDir, RunDir | None] = {}
        self.behind: list[Skipped] = []
        self._numbers: dict[str, str] = {}  # of the jobs, by their names
        self._tasks = tasks
        self._is_anew = is_anew
        self._now = time.time()

    def send(self, array: Array) -> None:
        """Give SLURM as many of an array's jobs as it takes."""
        answer = ask(array)
        first = array.first(answer.n_jobs)
        ready = tuple(filter(self._prepare, first.runs))
        after = self._numbers.get(array.after or "")
        if ready:
            sent = _send(replace(first, runs=ready, after=after), self._now)
            self.job_ids |= sent
            after = sent[ready[0]].partition("_")[0]
        if after is not None:  # what comes after an array that was not sent follows the one before
            self._numbers[array.job_name] = after
        self.leave(array.runs[len(first.runs) :], LATER, answer.shortage)

    def leave(self, runs: Iterable[RunDir], reason: str, error: VmcJobError | None) -> None:
        """Note of runs that they were not submitted; of some it is known already."""
        told = {*self.job_ids, *(item.run for item in self.behind)}
        items = (Skipped(run, run.path.name, reason, error) for run in runs if run not in told)
        self.behind += items

    def _prepare(self, run: RunDir) -> bool:
        """Whether the run is ready for its next attempt."""
        try:
            self.aside[run] = prepare(run, *self._tasks[run.path.name], self._is_anew)
        except RunDirError as error:  # it alone stays behind, as it was
            self.leave([run], UNUSABLE, error)
            return False
        return True


def _reason_to_skip(run: RunDir, seen: Queue, options: Options, is_anew: bool) -> str | None:
    """Why a run is not given to SLURM now; None if it is."""
    found, ticket, submission = examine(run, seen), seen.get(run.path), run.read_submission()
    reason = reason_to_skip(found, is_anew)
    if submission is not None and is_through(found, submission):
        return reason
    if reason is None and ticket is not None and ticket.stage is Stage.ACTIVE:
        # A clock that is wrong makes a worker look dead; two of them would be worse than none.
        return f"{found.state.lower()}, but its job {ticket.job_id} goes on; vmcjob cancel it first"
    if found.state in (State.QUEUED, State.RUNNING) and _is_other(run, options):
        return f"{reason} {WITH_OTHERS}"
    return reason


def _options(task: Task, site: Site, flags: Request) -> Options:
    """What a task asks for; SchedulerError for what cannot be asked, whether submitted or not."""
    options = Options(task.spec.resources, flags, site.slurm)
    options.extra()
    return options


def _is_other(run: RunDir, options: Options) -> bool:
    """Whether the run's job was submitted with other options, as far as its script tells."""
    submission, path = run.read_submission(), find_script(run)
    if submission is None or submission.job_name is None or path is None:
        return False
    n_tasks = 1 if submission.array_index is None else 2
    parameters = options.parameters(submission.job_name, path.parent, 1)
    now = render(parameters, path.parent, [sys.executable], n_tasks)
    try:
        return requests(path.read_text("utf-8", "replace")) != requests(now)
    except OSError:
        return False


def _adopt_jobs(runs: Sequence[RunDir]) -> None:
    """Look after jobs that SLURM took while its answer was lost, or we were killed."""
    cut_short = {
        run: submission
        for run in runs
        if (submission := run.read_submission()) and submission.job_id is None
    }
    seen = queue.look(cut_short)
    for run, submission in cut_short.items():
        ticket = seen.get(run.path)
        if ticket and ticket.job_id and ticket.stage is not Stage.ENDED:
            adopt(run, submission, ticket.job_id)


def _send(array: Array, now: float) -> dict[RunDir, str]:
    """Record the runs' job, submit it, record its id."""
    before = {run: run.read_submission() for run in array.runs}
    try:
        for run, index, place in array.places():
            run.write_submission(
                Submission(
                    scheduler="slurm",
                    job_id=None,
                    submitted_at=now,
                    job_name=array.job_name,
                    array_index=index,
                    number=array.number,
                    place=place,
                )
            )
        if array.runs_per_job > 1:
            write_companions(array.folder, array.jobs)
        job_ids = _run_sbatch(array)
    except (SchedulerError, RunDirError):
        # SLURM may have taken the job and its answer been lost: then the record must stand.
        if not _has_job(array):
            for run, submission in before.items():
                with suppress(RunDirError):
                    _restore(run, submission)
        raise
    pairs = zip(array.jobs, job_ids, strict=True)
    found = {run: job_id for runs, job_id in pairs for run in runs}
    for run, job_id in found.items():
        submission = run.read_submission()
        # A job that started at once may have written more than we know.
        if submission is not None and submission.job_id is None:
            run.write_submission(replace(submission, job_id=job_id))
    return found


def _restore(run: RunDir, submission: Submission | None) -> None:
    """Let a run be as it was before a submission that came to nothing."""
    if submission is None:
        run.clear_submission()
    else:
        run.write_submission(submission)


def _has_job(array: Array) -> bool:
    """Whether SLURM has the job; also if it cannot be asked, for then it may."""
    try:
        return any(ticket.job_id for ticket in queue.look(array.runs).values())
    except SchedulerError:
        return True


def _run_sbatch(array: Array) -> list[str]:
    """Have submitit pickle the supervisors and call sbatch; the id of every job."""
    slurm = load_submitit()
    try:
        array.folder.mkdir(parents=True, exist_ok=True)
        with _clean_environment():
            executor = slurm.SlurmExecutor(array.folder)
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
