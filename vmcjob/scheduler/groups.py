"""Runs that are submitted together: their budget, and runs that must not continue."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmcjob.plan import Plan, Task
from vmcjob.rundir import LOCAL, Group, RunDir, find_groups
from vmcjob.runs.budget import why_not_begun, why_over
from vmcjob.runs.usage import n_devices
from vmcjob.scheduler.receipt import Skipped


def form_groups(scheduler: str, root: Path, plans: Sequence[Plan]) -> list[Group]:
    """The group of each plan of a whole spec; runs that continue others join their groups."""
    formed: list[Group] = []
    for plan in plans:
        if plan.is_whole and plan.tasks:
            formed.append(_form(scheduler, plan))
        else:
            formed += [group for task in plan.tasks if (group := _join(scheduler, root, task))]
    return formed


def write_groups(root: Path, groups: Sequence[Group], *, are_told_of: bool) -> None:
    """Record groups that have limits, had limits, or need notifications."""
    for group in groups:
        before = find_groups(root, group.devices).values()
        if are_told_of or group.has_limits or before:
            number = 1 + max((known.number for known in before), default=0)
            replace(group, number=number).write(root)


def drop_stopped(
    root: Path, groups: Sequence[Group], wanted: Sequence[RunDir]
) -> tuple[list[RunDir], list[Skipped]]:
    """The runs that may continue, and skipped runs whose group has used up its budget.

    Newly submitted limits apply; other runs keep their earlier limits, with all failures counted.
    """
    spent = {group.name: why_over(root, group) for group in groups}
    formed = {run_id: group for group in groups for run_id in group.devices}
    known = find_groups(root, [run.path.name for run in wanted])
    going: list[RunDir] = []
    stopped: list[Skipped] = []
    for run in wanted:
        name = run.path.name
        if name in formed:
            reason = spent[formed[name].name]
        else:
            reason = why_not_begun(run, known[name]) if name in known else None
        if reason is None:
            going.append(run)
        else:
            stopped.append(Skipped(run, name, reason))
    return going, stopped


def _join(scheduler: str, root: Path, task: Task) -> Group | None:
    """The group of the run that this run continues, extended by this run; None without one."""
    if task.continues is None:
        return None
    group = find_groups(root, [task.continues]).get(task.continues)
    if group is None:
        return None
    return replace(group, devices={**group.devices, task.run_id: _devices(scheduler, task)})


def _form(scheduler: str, plan: Plan) -> Group:
    """The runs of a spec with its budget, which is the same for all of them."""
    devices = {task.run_id: _devices(scheduler, task) for task in plan.tasks}
    budget = plan.tasks[0].spec.budget
    return Group(devices=devices, gpu_hours=budget.gpu_hours, max_failures=budget.max_failures)


def _devices(scheduler: str, task: Task) -> float:
    return n_devices(task.spec.resources, is_job=scheduler != LOCAL)
