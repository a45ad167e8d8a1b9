"""Runs that wait for others: their needs, their order, and runs that wait in vain."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from vmcjob.errors import RunDirError, UsageError
from vmcjob.plan import Task
from vmcjob.rundir import END, RESULTS, RunDir
from vmcjob.runs.status import Queue, State, examine


def waits_of(run: RunDir, task: Task) -> dict[str, str]:
    """What a run needs of other runs before it can start, by their ids.

    No results are needed if it has its own copy of its start.
    """
    waits = dict.fromkeys(task.after, END)
    origin = task.spec.train.start_from
    if origin is None or task.continues or run.start_path.exists():
        return waits
    return waits | {origin: RESULTS}


def in_order(tasks: Mapping[RunDir, Task]) -> list[RunDir]:
    """The runs, with those first that others wait for; UsageError if some wait in a circle.

    Queued runs count with the waits of their submissions.
    """
    graph: dict[RunDir, list[RunDir]] = {}
    further = list(tasks)
    while further:
        run = further.pop()
        names = waits_of(run, tasks[run]) if run in tasks else run.open_waits
        graph[run] = [run.beside(run_id) for run_id in names]
        further += [other for other in graph[run] if other not in graph]
    if not any(graph.values()):
        return list(tasks)
    try:
        ordered = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        names = [run.path.name for run in error.args[1]]
        circle = ", which waits for ".join(reversed(names))
        raise UsageError(f"{circle}: none of them would ever begin; leave one wait out") from None
    return [run for run in ordered if run in tasks]


def why_in_vain(
    run: RunDir, task: Task, going: Sequence[RunDir], seen: Queue, scheduler: str
) -> str | None:
    """The reason why a run would wait for ever if it was submitted now; None if it would not.

    Args:
        run, task: the run.
        going: runs that are submitted together with it and can finish before.
        seen: the states of the existing runs' jobs.
        scheduler: the scheduler of the submission.
    """
    for run_id, what in waits_of(run, task).items():
        who = f"{run_id}, which it {'starts from' if what == RESULTS else 'is to come after'}"
        other = run.beside(run_id)
        if other in going or other.can_be_begun_with:
            continue
        try:
            state = examine(other, seen).state if other.exists else None
        except RunDirError as error:
            return str(error)
        if state is None:
            return f"{who}, is gone; submit its spec first"
        if not state.is_active:
            return f"{who}, is {state.lower()}; {_advise(state, run_id, run, what)}"
        theirs = other.read_submission()
        if theirs is not None and theirs.scheduler != scheduler:
            where = f"{who}, is in the hands of {theirs.scheduler}"
            return f"{where}; submit it there too, or when that has finished"
    return None


def _advise(state: State, run_id: str, run: RunDir, what: str) -> str:
    """What goes on with a run that others wait for, and with the one that does."""
    if state is State.EXHAUSTED:
        return "raise budget.gpu_hours in its spec, submit that, then this again"
    if state is State.DIVERGED:
        return "change its spec and submit that, then this with the new run"
    if what == END and run_id not in run.comes_after:  # the run was never submitted
        return f"vmcjob resume {run_id}, then submit this again"
    return f"vmcjob resume {run_id} {run.path.name} goes on with both"
