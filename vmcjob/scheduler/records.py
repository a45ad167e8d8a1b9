"""What every submission writes into a run directory, whoever will run it."""

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from vmcjob import __version__
from vmcjob.errors import NotFoundError, RunDirError, UsageError, VmcJobError, combine
from vmcjob.plan import Plan, Task
from vmcjob.rundir import Record, RunDir, Submission
from vmcjob.scheduler.queue import look
from vmcjob.spec import JobSpec, dump_spec, load_resolved, why_no_start
from vmcjob.status import State, examine

log = logging.getLogger("vmcjob")

RESUME = "has no results yet; vmcjob resume it first"
UNSTARTABLE = {  # those that will not finish by themselves
    State.NEW: "has no results yet; submit it first",
    State.BLOCKED: "has no results yet; vmcjob status tells why",
    State.CANCELLED: RESUME,
    State.PREEMPTED: RESUME,
    State.EXHAUSTED: "has no results yet; submit its spec again with a larger budget first",
    State.FAILED: RESUME,
    State.DEAD: RESUME,
    State.DIVERGED: "never will have results that could be begun with",
    State.FINISHED: "has lost its results",
}


def distinct(plans: Sequence[Plan]) -> dict[str, tuple[str, Task]]:
    """Source and task by run id; the same science named twice is one run."""
    return {task.run_id: (plan.source, task) for plan in plans for task in plan.tasks}


def make_record(source: str, task: Task) -> Record:
    """Who the run is."""
    return Record(
        run_id=task.run_id,
        name=task.name,
        point=task.point,
        seed=task.seed,
        science_sha256=task.science_sha256,
        pool_sha256=task.pool_sha256,
        source=os.path.abspath(source),
        vmcjob_version=__version__,
    )


def require_starts(root: Path, plans: Sequence[Plan]) -> None:
    """NotFoundError if a run is to start from one that is not there; UsageError, if too unlike.

    StoreError if it is to continue one whose results are damaged.
    """
    problems: list[VmcJobError] = []
    planned = distinct(plans)
    for run_id, (source, task) in planned.items():
        if RunDir(root / run_id).exists:
            continue
        if task.continues:
            _require_results(RunDir(root / task.continues))
        if task.continues or task.spec.train.start_from is None:
            continue
        start = RunDir(root / task.spec.train.start_from)
        _, origin = planned.get(start.path.name, ("", None))
        if reason := _why_no_start(start, task.spec, origin and origin.spec):
            kind = UsageError if start.exists else NotFoundError
            problems.append(kind(f"{source}: train.start_from: {start.path} {reason}"))
    if problems:
        distinct_ones = {str(problem): problem for problem in problems}
        raise combine(list(distinct_ones.values()))


def _require_results(run: RunDir) -> None:
    from vmcjob.store import RunStore

    RunStore.open(run.store_path, run_id=run.path.name).checkpoint()


def _why_no_start(start: RunDir, spec: JobSpec, planned: JobSpec | None) -> str | None:
    """Why a run cannot begin with another, there or `planned` with it; finished it need not be."""
    if planned is not None:
        return why_no_start(spec, planned)
    if not start.exists:
        return "is not there"
    state = None if start.can_be_begun_with else examine(start, look([start])).state
    if state is not None and state in UNSTARTABLE:
        return f"is {state.lower()} and {UNSTARTABLE[state]}"
    try:
        origin = load_resolved(start.read_spec_text(), str(start.spec_path))
    except VmcJobError:
        return None  # the worker asks the results themselves, which have their own copy
    return why_no_start(spec, origin)


def create_missing(root: Path, tasks: Mapping[str, tuple[str, Task]]) -> list[RunDir]:
    """Make the directories of runs that have none; those that were made."""
    made: list[RunDir] = []
    for run_id, (source, task) in tasks.items():
        if not RunDir(root / run_id).exists:
            made.append(create_run(root, source, task))
            made[-1].write_waits(task.after)
    return made


def remove_unused(made: Sequence[RunDir]) -> None:
    """Remove new directories of runs that no batch system was given."""
    for run in made:
        if run.read_submission() is None and run.read_heartbeat() is None:
            shutil.rmtree(run.path, ignore_errors=True)


def create_run(root: Path, source: str, task: Task) -> RunDir:
    """The directory of a run, with what it starts from, or with the results that it continues."""
    origin, make_store = task.spec.train.start_from, None
    start = None
    if origin and RunDir(root / origin).can_be_begun_with:  # else it is copied when the run starts
        start = RunDir(root / origin).store_path
    if task.continues:
        shorter = RunDir(root / task.continues)
        start = shorter.start_path if origin else None
        make_store = partial(_make_longer, shorter, task)
    record, text = make_record(source, task), dump_spec(task.spec)
    return RunDir.create(root, record, text, start=start, make_store=make_store)


def _make_longer(shorter: RunDir, task: Task, path: Path) -> None:
    """The store of a run that has all results of a shorter one."""
    from vmcjob.store import RunStore, extend

    store = RunStore.open(shorter.store_path, run_id=task.continues)
    n_more = task.spec.evaluate.steps - store.n_due["evaluate"]
    warning = extend(
        store,
        path,
        run_id=task.run_id,
        spec_text=dump_spec(task.spec),
        n_evaluate=task.spec.evaluate.steps,
        n_snapshots=min(task.spec.output.snapshots, n_more),
    )
    if warning:
        log.warning("%s", warning)


def prepare(run: RunDir, source: str, task: Task, is_restart: bool) -> RunDir | None:
    """Make a run's directory ready for its next attempt; what was put aside, if it is its first."""
    text = dump_spec(task.spec)
    if is_restart and examine(run).state is not State.NEW:
        return run.start_over(make_record(source, task), text)
    if text != run.read_spec_text():  # other resources: the science is the same
        run.write_spec_text(text)
    return None


def record_id(run: RunDir, job_id: str) -> None:
    """Note the job's id, unless a job that started at once has written more than we know.

    A disk that is full by now takes nothing back: the job is there, and is found by its name.
    """
    submission = run.read_submission()
    try:
        if submission is not None and submission.job_id is None:
            run.write_submission(replace(submission, job_id=job_id))
    except RunDirError as error:
        log.warning("%s; the run is submitted all the same, as job %s", error, job_id)


def restore(before: Mapping[RunDir, Submission | None]) -> None:
    """Let runs be as they were before a submission that came to nothing."""
    for run, submission in before.items():
        with suppress(RunDirError):
            if submission is None:
                run.clear_submission()
            else:
                run.write_submission(submission)
