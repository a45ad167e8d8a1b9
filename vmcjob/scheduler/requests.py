"""What users ask of a scheduler: choose one, submit runs."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.plan import Plan, Task
from vmcjob.rundir import Process, RunDir, Submission
from vmcjob.scheduler.local import (
    Order,
    give_order,
    python_command,
    queue_lock,
    start_launcher,
)
from vmcjob.scheduler.receipt import (
    UNUSABLE,
    Receipt,
    Skipped,
    Submitted,
    reason_to_skip,
)
from vmcjob.scheduler.records import create_run, distinct, make_record, prepare
from vmcjob.status import examine


def choose(scheduler: str, is_local: bool) -> str:
    """The scheduler to use: the site's wish, or this machine when asked for by flag."""
    if is_local:
        return "local"
    if scheduler == "slurm" or (scheduler == "auto" and shutil.which("sbatch")):
        return "slurm"
    return "local"


def preview(root: Path, plans: Sequence[Plan], *, is_anew: bool = False) -> Receipt:
    """What `submit` would do now; writes nothing."""
    submitted: list[Submitted] = []
    skipped: list[Skipped] = []
    for run_id, (source, task) in distinct(plans).items():
        run = RunDir(root / run_id)
        _refuse_what_needs_a_cluster(task)
        reason = None
        try:
            if run.exists:
                run.require(make_record(source, task))
                reason = reason_to_skip(examine(run), is_anew)
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
    is_anew: bool = False,
) -> Receipt:
    """Have the plans' runs worked on by this machine, at most `max_parallel` at a time.

    Finished, running, queued and diverged runs are left alone; all others start or continue. With
    `is_anew`, what has ended begins from its start, and its directory of before is put aside.
    `worker_command` gets the run directory as its last argument, `vmcjob run` by default.
    """
    root = root.absolute()
    tasks = distinct(plans)
    for _, task in tasks.values():
        _refuse_what_needs_a_cluster(task)
    for run_id, (source, task) in tasks.items():
        if not RunDir(root / run_id).exists:
            create_run(root, source, task)
    with queue_lock(root):
        plan = preview(root, plans, is_anew=is_anew)
        if not plan.submitted:
            return plan
        command = worker_command or [*python_command(), "run"]
        launcher = start_launcher(root)
        submitted, unusable = [], []
        try:
            job_id = f"local-{launcher.pid}"
            for item in plan.submitted:
                try:
                    aside = prepare(item.run, *tasks[item.run_id], is_anew)
                    _hand_over(item.run, job_id, launcher.pid)
                except RunDirError as error:
                    unusable.append(Skipped(item.run, item.run_id, UNUSABLE, error))
                else:
                    submitted.append(Submitted(item.run, item.run_id, job_id, aside))
            runs = tuple(item.run.path for item in submitted)
            give_order(launcher, Order(runs, max_parallel, tuple(command)), root)
        except BaseException:
            launcher.kill()
            launcher.wait()
            raise
    return Receipt(tuple(submitted), (*plan.skipped, *unusable), (launcher,))


def _refuse_what_needs_a_cluster(task: Task) -> None:
    if task.spec.resources.nodes > 1:
        raise SchedulerError(
            f"{task.run_id}: asks for {task.spec.resources.nodes} nodes, and this machine is one; "
            "set resources.nodes = 1"
        )


def _hand_over(run: RunDir, job_id: str, launcher_pid: int) -> None:
    """Record who will run it."""
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
