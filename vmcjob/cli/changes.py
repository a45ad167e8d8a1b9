"""How a spec differs from the last run of its name: said before a new run starts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.preview import spec_values
from vmcjob.cli.screen import say
from vmcjob.errors import VmcJobError

if TYPE_CHECKING:
    from vmcjob.plan import Plan, Task
    from vmcjob.rundir import RunDir
    from vmcjob.spec import JobSpec

MAX_CHANGES = 4
MAX_LETTERS = 60


def say_changes(plan: "Plan", root: Path) -> None:
    """Print how the spec of the first run without a directory differs from an earlier run's.

    The earlier run is the last one of the same name. Without one, nothing is printed.
    """
    from vmcjob.rundir import RunDir, list_runs
    from vmcjob.spec import load_resolved

    task = next((one for one in plan.tasks if not RunDir(root / one.run_id).exists), None)
    if task is None:
        return
    planned = {one.run_id for one in plan.tasks}
    others = [run for run in list_runs(root) if run.path.name not in planned and _is_of(task, run)]
    if not others:
        return
    last = others[-1]
    try:
        before = load_resolved(last.read_spec_text(), str(last.spec_path))
    except VmcJobError:
        return  # what cannot be read cannot be compared
    changes = list(_changes(before, task.spec))
    more = [f"{len(changes) - MAX_CHANGES} more"] if len(changes) > MAX_CHANGES else []
    if changes:
        words = ", ".join([*changes[:MAX_CHANGES], *more])
        say(f"{plan.source}: not the calculation of {last.path.name}: {words}", "dim")


def _is_of(task: "Task", run: "RunDir") -> bool:
    """Whether a run has the name, place and seed of a task, and its own numbers."""
    try:
        record = run.read_record()
    except VmcJobError:
        return False
    who = record.name, dict(record.point), record.seed
    return who == (task.name, dict(task.point), task.seed) and run.continues is None


def _changes(before: "JobSpec", after: "JobSpec") -> Iterator[str]:
    """Each key that decides numbers and has another value, with both values; kinds first."""
    old, new = _values(before), _values(after)
    for key in sorted({**new, **old}, key=lambda key: not key.endswith(".kind")):
        if old.get(key) != new.get(key):
            yield f"{key} = {_short(new.get(key))} (was {_short(old.get(key))})"


def _values(spec: "JobSpec") -> dict[str, str]:
    """The keys that decide numbers, with their values as a spec writes them."""
    from vmcjob.spec import dump_spec, science

    written, tables = spec_values(dump_spec(spec)), json.loads(science(spec)).items()
    values = {f"{table}.{key}": value for table, own in tables for key, value in own.items()}
    given = {key: value for key, value in values.items() if value is not None}
    return {key: written.get(key, json.dumps(value)) for key, value in given.items()}


def _short(text: str | None) -> str:
    if text is None:
        return "unset"
    return text if len(text) <= MAX_LETTERS else f"{text[: MAX_LETTERS - 3]}..."
