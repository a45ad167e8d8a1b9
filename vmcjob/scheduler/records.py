"""Files that every submission writes into a run directory, for all backends."""

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from vmcjob.errors import NotFoundError, RunDirError, UsageError, VmcJobError, combine
from vmcjob.plan import Plan, Task
from vmcjob.rundir import Record, RunDir, Submission
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.queue import look
from vmcjob.spec import JobSpec, dump_spec, load_resolved, why_no_start
from vmcjob.version import __version__

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
    """Source and task by run id; equal science under two names is one run."""
    return {task.run_id: (plan.source, task) for plan in plans for task in plan.tasks}


def make_record(source: str, task: Task) -> Record:
    """The record of a run."""
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
    """NotFoundError if the run to start from does not exist; UsageError if it does not fit.

    StoreError if the results of the run to continue are damaged.
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
    """The reason why a run cannot start from another, existing or `planned`, finished or not."""
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
    """Make missing run directories; returns the new ones."""
    made: list[RunDir] = []
    for run_id, (source, task) in tasks.items():
        if not RunDir(root / run_id).exists:
            made.append(create_run(root, source, task))
            made[-1].write_waits(task.after)
    return made


def remove_unused(made: Sequence[RunDir]) -> None:
    """Remove new directories of runs that were not submitted."""
    for run in made:
        if run.read_submission() is None and run.read_heartbeat() is None:
            shutil.rmtree(run.path, ignore_errors=True)


def create_run(root: Path, source: str, task: Task) -> RunDir:
    """The directory of a run, with its start or with the results that it continues."""
    origin, make_store = task.spec.train.start_from, None
    start = None
    if origin and RunDir(root / origin).can_be_begun_with:  # else it is copied when the run starts
        start = RunDir(root / origin).store_path
    if task.continues:
        shorter = RunDir(root / task.continues)
        start = shorter.start_path if origin else None
        make_store = partial(_make_longer, shorter, task)
    record, text = make_record(source, task), dump_spec(task.spec)
    run = RunDir.create(root, record, text, start=start, make_store=make_store)
    _note_origins(run, task)
    return run


def _note_origins(run: RunDir, task: Task) -> None:
    """Record the origins of the spec's values, if they are known and not recorded yet.

    A full disk stops no submission for them.
    """
    if task.origins is None or task.origins == run.read_origins():
        return
    try:
        run.write_origins(task.origins)
    except RunDirError as error:
        log.warning("%s; show will not tell where the values of the spec came from", error)


def _make_longer(shorter: RunDir, task: Task, path: Path) -> None:
    """Make the store of a run that continues a shorter one."""
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
    """Prepare a run's directory for its next attempt; on a restart, return the old directory."""
    text = dump_spec(task.spec)
    if is_restart and examine(run).state is not State.NEW:
        aside = run.start_over(make_record(source, task), text)
        _note_origins(run, task)
        return aside
    if text != run.read_spec_text():  # other resources: the science is the same
        run.write_spec_text(text)
    _note_origins(run, task)
    return None


def record_id(run: RunDir, job_id: str) -> None:
    """Record the job's id, unless a job that started at once has already recorded more.

    A full disk changes nothing: the job exists, and is found by its name.
    """
    submission = run.read_submission()
    try:
        if submission is not None and submission.job_id is None:
            run.write_submission(replace(submission, job_id=job_id))
    except RunDirError as error:
        log.warning("%s; the run is submitted all the same, as job %s", error, job_id)


def restore(before: Mapping[RunDir, Submission | None]) -> None:
    """Restore the records of runs after a failed submission."""
    for run, submission in before.items():
        with suppress(RunDirError):
            if submission is None:
                run.clear_submission()
            else:
                run.write_submission(submission)
