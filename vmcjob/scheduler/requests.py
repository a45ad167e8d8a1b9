"""What users ask of a scheduler: choose one, submit runs, cancel runs."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmcjob import __version__
from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.plan import Plan, Task
from vmcjob.rundir import Process, Record, RunDir, Submission
from vmcjob.scheduler.local import (
    Order,
    give_order,
    python_command,
    queue_lock,
    start_launcher,
)
from vmcjob.spec import dump_spec
from vmcjob.status import Row, State, examine

UNUSABLE = "its directory cannot be used"


@dataclass(frozen=True)
class Submitted:
    """A run that will be worked on; no job id in a preview."""

    run: RunDir
    run_id: str
    job_id: str | None


@dataclass(frozen=True)
class Skipped:
    """A run that is left alone, and why."""

    run: RunDir
    run_id: str
    reason: str
    error: RunDirError | None = None  # where its directory is of no use


@dataclass(frozen=True)
class Receipt:
    """What became of a submission, in the order of the plan."""

    submitted: tuple[Submitted, ...]
    skipped: tuple[Skipped, ...]
    launcher: subprocess.Popen[bytes] | None = None  # detached: nobody needs to wait for it


@dataclass(frozen=True)
class Cancelled:
    """What became of one run that was to be cancelled."""

    run_id: str
    was_active: bool
    result: str


def choose(scheduler: str, is_local: bool) -> str:
    """The scheduler to use: the site's wish, or this machine when asked for by flag."""
    if is_local:
        return "local"
    if scheduler == "slurm":
        raise SchedulerError(
            "the site profile asks for SLURM, which this version cannot submit to yet; "
            "--local runs on this machine instead"
        )
    if scheduler == "auto" and shutil.which("sbatch"):
        raise SchedulerError(
            "sbatch is on PATH, so the runs would go to SLURM, which this version cannot submit "
            "to yet; --local runs on this machine instead"
        )
    return "local"


def preview(root: Path, plans: Sequence[Plan]) -> Receipt:
    """What `submit` would do now; writes nothing."""
    submitted: list[Submitted] = []
    skipped: list[Skipped] = []
    for run_id, (source, task) in _distinct(plans).items():
        run = RunDir(root / run_id)
        _refuse_what_needs_a_cluster(task)
        reason = None
        try:
            if run.exists:
                run.require(_record(source, task))
                reason = reason_to_skip(examine(run))
        except RunDirError as error:
            skipped.append(Skipped(run, run_id, UNUSABLE, error))
            continue
        if reason is None:
            submitted.append(Submitted(run, run_id, None))
        else:
            skipped.append(Skipped(run, run_id, reason))
    return Receipt(tuple(submitted), tuple(skipped))


def submit(
    root: Path,
    plans: Sequence[Plan],
    *,
    max_parallel: int,
    worker_command: Sequence[str] | None = None,
) -> Receipt:
    """Have the plans' runs worked on by this machine, at most `max_parallel` at a time.

    Finished, running, queued and diverged runs are left alone; all others start or continue.
    `worker_command` gets the run directory as its last argument, `vmcjob run` by default.
    """
    root = root.absolute()
    tasks = _distinct(plans)
    for _, task in tasks.values():
        _refuse_what_needs_a_cluster(task)
    for run_id, (source, task) in tasks.items():
        if not RunDir(root / run_id).exists:
            RunDir.create(root, _record(source, task), dump_spec(task.spec))
    with queue_lock(root):
        plan = preview(root, plans)
        if not plan.submitted:
            return plan
        command = worker_command or [*python_command(), "run"]
        launcher = start_launcher(root)
        submitted, unusable = [], []
        try:
            job_id = f"local-{launcher.pid}"
            for item in plan.submitted:
                try:
                    _hand_over(item.run, tasks[item.run_id][1], job_id, launcher.pid)
                except RunDirError as error:
                    unusable.append(Skipped(item.run, item.run_id, UNUSABLE, error))
                else:
                    submitted.append(Submitted(item.run, item.run_id, job_id))
            runs = tuple(item.run.path for item in submitted)
            give_order(launcher, Order(runs, max_parallel, tuple(command)), root)
        except BaseException:
            launcher.kill()
            launcher.wait()
            raise
    return Receipt(tuple(submitted), (*plan.skipped, *unusable), launcher)


def cancel(run: RunDir) -> Cancelled:
    """Take a run out of the queue, or ask its worker to stop at the next checkpoint."""
    found = examine(run)
    if not found.state.is_active:
        return Cancelled(found.run_id, False, f"not active ({found.state.lower()})")
    with queue_lock(run.path.absolute().parent):
        found = examine(run)  # it may have started meanwhile
        if found.state is State.QUEUED:
            run.write_cancellation(None)
            run.clear_submission()
            return Cancelled(found.run_id, True, "taken out of the queue")
        workers = _workers(run)
        for worker in filter(Process.is_alive, workers):
            run.write_cancellation(worker)
            if worker.terminate():
                return Cancelled(found.run_id, True, "asked to stop at its next checkpoint")
        away = [worker.host for worker in workers if worker.is_alive() is None]
        if found.state.is_active and away:
            raise SchedulerError(f"{found.run_id}: runs on {away[0]}; cancel it there")
        return Cancelled(found.run_id, False, "ended just now")


def reason_to_skip(found: Row) -> str | None:
    """Why a run in this state is not submitted again; None when it is."""
    match found.state:
        case State.FINISHED:
            return f"finished, but {found.message}" if found.message else "finished"
        case State.QUEUED:
            return "queued"
        case State.RUNNING:
            return "running"
        case State.STOPPING:
            return "still stopping; submit it again when it has stopped"
        case State.DIVERGED:
            return "diverged; change the spec, for example to a smaller optimizer.learning_rate"
        case State.NEW | State.CANCELLED | State.PREEMPTED | State.FAILED | State.DEAD:
            return None


def _distinct(plans: Sequence[Plan]) -> dict[str, tuple[str, Task]]:
    """Source and task by run id; the same science named twice is one run."""
    return {task.run_id: (plan.source, task) for plan in plans for task in plan.tasks}


def _refuse_what_needs_a_cluster(task: Task) -> None:
    if task.spec.resources.nodes > 1:
        raise SchedulerError(
            f"{task.run_id}: asks for {task.spec.resources.nodes} nodes, and this machine is one; "
            "set resources.nodes = 1"
        )


def _record(source: str, task: Task) -> Record:
    return Record(
        run_id=task.run_id,
        name=task.name,
        point=task.point,
        seed=task.seed,
        science_sha256=task.science_sha256,
        source=os.path.abspath(source),
        vmcjob_version=__version__,
    )


def _hand_over(run: RunDir, task: Task, job_id: str, launcher_pid: int) -> None:
    """Record who will run it, and the spec's present resources: the science is the same."""
    text = dump_spec(task.spec)
    if text != run.read_spec_text():
        run.write_spec_text(text)
    launcher = Process.of_pid(launcher_pid)
    run.clear_cancellation()
    run.write_submission(
        Submission(
            scheduler="local",
            job_id=job_id,
            host=launcher.host,
            pid=launcher.pid,
            process_start=launcher.start,
        )
    )


def _workers(run: RunDir) -> list[Process]:
    """Who may be working on the run, each process once."""
    submission, heartbeat = run.read_submission(), run.read_heartbeat()
    named = [submission.worker if submission else None, heartbeat.process if heartbeat else None]
    return list(dict.fromkeys(worker for worker in named if worker is not None))
