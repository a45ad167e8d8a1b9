"""Keys beside the science follow the newest spec, even for finished runs."""

import dataclasses
from collections.abc import Iterator, Sequence

from vmcjob.errors import RunDirError, VmcJobError
from vmcjob.plan import Plan, Task
from vmcjob.rundir import RunDir, list_runs
from vmcjob.runs.status import examine
from vmcjob.scheduler.receipt import Receipt, Skipped
from vmcjob.scheduler.records import distinct
from vmcjob.spec import JobSpec, beside_science, dump_spec, load_resolved


def take_over(receipt: Receipt, plans: Sequence[Plan], *, is_dry: bool) -> Receipt:
    """The receipt, in which each skipped run says which keys it has taken over, or would.

    Queued and running runs take over only the reference energy, which no worker reads. Runs that
    continue a run follow it.
    """
    tasks = {run_id: task for run_id, (_, task) in distinct(plans).items()}
    skipped = tuple(_follow(item, tasks[item.run_id], is_dry) for item in receipt.skipped)
    return dataclasses.replace(receipt, skipped=skipped)


def _follow(item: Skipped, task: Task, is_dry: bool) -> Skipped:
    if item.error is not None or not item.run.exists:  # as of one that would wait in vain
        return item
    try:
        changed = _change(item.run, task.spec, is_whole=not examine(item.run).state.is_active)
        if changed is None:
            return item
        text, keys = changed
        if not is_dry:
            _write(item.run, text, keys, task)
            for longer in _longer(item.run):
                if change := _change(longer, task.spec, is_whole=False):
                    _write(longer, *change, task)
    except RunDirError as error:
        return dataclasses.replace(item, error=error)
    words = f"{'would take' if is_dry else 'took'} over {', '.join(keys)}"
    return dataclasses.replace(item, reason=f"{item.reason}; {words}")


def _write(run: RunDir, text: str, keys: Sequence[str], task: Task) -> None:
    """Replace the run's spec, and the origins of the changed keys where origins are recorded."""
    run.write_spec_text(text)
    if (before := run.read_origins()) is not None:
        kept = {key: words for key, words in before.items() if key not in keys}
        given = task.origins or {}
        run.write_origins(kept | {key: given[key] for key in keys if key in given})


def _change(run: RunDir, wanted: JobSpec, *, is_whole: bool) -> tuple[str, list[str]] | None:
    """The run's spec with the other spec's keys beside science, and the names of changed keys."""
    try:
        before = load_resolved(run.read_spec_text(), str(run.spec_path))
    except VmcJobError:
        return None  # reading the spec later will report the mistake
    system = dataclasses.replace(before.system, reference=wanted.system.reference)
    after = wanted if is_whole else dataclasses.replace(before, system=system)
    old, new = beside_science(before), beside_science(after)
    keys = [key for key in old | new if old.get(key) != new.get(key)]
    return (dump_spec(after), keys) if keys else None


def _longer(run: RunDir) -> Iterator[RunDir]:
    """The runs that continue a run, directly or indirectly."""
    others = list_runs(run.path.parent)
    line = {run.path.name}
    while found := [other for other in others if other.continues in line]:
        others = [other for other in others if other not in found]
        line |= {other.path.name for other in found}
        yield from found
