"""Plans handed in to a scheduler, or shown: what submit and resume have in common."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vmcjob.cli.app import INTERRUPTED
from vmcjob.cli.screen import put, put_json, put_table, say
from vmcjob.cli.text import Cell, Column, count, format_point
from vmcjob.errors import IncompleteError, UsageError, combine

if TYPE_CHECKING:
    from vmcjob.plan import Plan, Task
    from vmcjob.resources import Request
    from vmcjob.scheduler import Receipt
    from vmcjob.scheduler.arrays import Array
    from vmcjob.site import Site

SOME_FAILED = IncompleteError.exit_code


@dataclass(frozen=True)
class Wishes:
    """How and where runs are to be started."""

    place: "Site"
    where: str  # the options that lead other commands to the same runs
    flags: "Request"
    max_parallel: int | None
    is_local: bool = False
    is_followed: bool = False
    is_dry: bool = False
    is_anew: bool = False  # from their first step, whatever they have
    as_json: bool = False


def hand_in(folders: "Mapping[Path, list[Plan]]", wishes: Wishes) -> None:
    """Start the plans' runs, each in its runs root, and say so, or show what would be started."""
    from vmcjob import scheduler

    for root, plans in folders.items():
        scheduler.require_starts(root, plans)
    receipts: list[Receipt] = []
    arrays: list[Array] = []
    try:
        for root, plans in folders.items():
            here = replace(wishes, place=replace(wishes.place, runs=root))
            receipt, drawn = _start(plans, here)
            receipts.append(receipt)
            arrays += drawn
            if not wishes.as_json:
                _show_preview(receipt, plans, drawn) if here.is_dry else _show(receipt, plans)
    finally:  # what has been submitted is told, whatever stands in the way of the rest
        if wishes.as_json and receipts:
            put_json(_document(_join(receipts), arrays, is_dry=wishes.is_dry))
    _look_after(_join(receipts), wishes)


def _start(plans: "list[Plan]", wishes: Wishes) -> "tuple[Receipt, Sequence[Array]]":
    """What became of the runs of one root, or would; in a dry run for SLURM, its jobs."""
    from vmcjob import scheduler

    is_slurm = scheduler.choose(wishes.place.scheduler, wishes.is_local) == "slurm"
    return (_submit_to_slurm if is_slurm else _submit_here)(plans, wishes)


def _submit_here(plans: "list[Plan]", wishes: Wishes) -> "tuple[Receipt, Sequence[Array]]":
    """Run on this machine."""
    from vmcjob import scheduler
    from vmcjob.resources import Request

    if wishes.flags != Request():
        raise UsageError("options of SLURM jobs were given, but the runs stay on this machine")
    root, anew = wishes.place.runs, wishes.is_anew
    n_slots = wishes.max_parallel or wishes.place.max_parallel
    say(f"local scheduler: on this machine, {count(n_slots, 'run')} at a time")
    _say_what_only_a_cluster_heeds(plans)
    if wishes.is_dry:
        return scheduler.preview(root, plans, is_anew=anew), ()
    return scheduler.submit(root, plans, max_parallel=n_slots, is_anew=anew), ()


def _submit_to_slurm(plans: "list[Plan]", wishes: Wishes) -> "tuple[Receipt, Sequence[Array]]":
    """Give the runs to SLURM."""
    from vmcjob.scheduler import slurm

    say("slurm scheduler: as jobs of this cluster")
    place, anew = wishes.place, wishes.is_anew
    request = place.runs, plans, place, wishes.flags, wishes.max_parallel
    if wishes.is_dry:
        draft = slurm.draft(*request, is_anew=anew)
        return draft.receipt, draft.arrays
    return slurm.submit(*request, is_anew=anew), ()


def _join(receipts: "Sequence[Receipt]") -> "Receipt":
    """The receipts of several runs roots as one."""
    from vmcjob.scheduler import Receipt

    submitted = tuple(item for receipt in receipts for item in receipt.submitted)
    skipped = tuple(item for receipt in receipts for item in receipt.skipped)
    launchers = tuple(item for receipt in receipts for item in receipt.launchers)
    return Receipt(submitted, skipped, launchers)


def _look_after(receipt: "Receipt", wishes: Wishes) -> None:
    """Name what went wrong; follow the runs, or say how."""
    errors = [item.error for item in receipt.skipped if item.error]
    for error in errors:
        say(str(error))
    if wishes.is_followed and not wishes.is_dry:
        _follow(receipt, wishes.where, wishes.as_json)
    elif not (wishes.as_json or wishes.is_dry):
        _hint(receipt, wishes.where)
    if errors:
        raise typer.Exit(combine(errors).exit_code)


def _say_what_only_a_cluster_heeds(plans: "list[Plan]") -> None:
    """Nothing that a spec asks for is left aside without a word."""
    from vmcjob.spec import Container, Resources

    specs = [task.spec for task in _tasks(plans).values()]
    tables = {
        "resources": any(spec.resources != Resources() for spec in specs),
        "container": any(spec.container != Container() for spec in specs),
    }
    asked = " and ".join(f"[{table}]" for table, is_asked in tables.items() if is_asked)
    if asked:
        say(f"{asked}: for clusters only; here a run has all devices and this Python", "dim")


def _show(receipt: "Receipt", plans: "list[Plan]") -> None:
    """One line per run, in the order of the specs."""
    submitted = {item.run_id: item.run for item in receipt.submitted}
    skipped = {item.run_id: item for item in receipt.skipped}
    tasks = _tasks(plans)
    is_seed_shown = len({task.seed for task in tasks.values()}) > 1
    columns = [Column("run"), Column("point", rank=2), Column("seed", "right", rank=3)]
    columns += [Column("result"), Column("directory", rank=1)]
    rows = [
        [
            Cell(run_id),
            Cell(format_point(task.point)),
            Cell(str(task.seed) if is_seed_shown else ""),
            Cell("submitted", "green")
            if run_id in submitted
            else Cell(f"skipped: {skipped[run_id].reason}", "dim"),
            Cell(_relative((submitted.get(run_id) or skipped[run_id].run).path)),
        ]
        for run_id, task in tasks.items()
    ]
    put_table(columns, rows)
    for item in receipt.submitted:
        if item.aside is not None:
            say(f"put aside: {_relative(item.aside.path)}", "dim")


def _show_preview(receipt: "Receipt", plans: "list[Plan]", arrays: "Sequence[Array]") -> None:
    """What would be submitted, as the worker and SLURM would read it."""
    from vmcjob.spec import dump_spec

    tasks = _tasks(plans)
    for item in receipt.submitted:
        put(f"# would be submitted: {_relative(item.run.path)}")
        put(dump_spec(tasks[item.run_id].spec))
    for item in receipt.skipped:
        put(f"# would be skipped: {_relative(item.run.path)}, {item.reason}")
    for array in arrays:
        put(f"# would be given to sbatch, for {count(len(array.runs), 'run')}:")
        put(array.script)
        put(f"# and would start, for each run:\n{shlex.join(array.command(array.runs[0]))}")
    if arrays:
        say(_describe_cost(arrays), "dim")


def _describe_job(array: "Array") -> dict[str, Any]:  # a JSON document
    """One sbatch of a dry run."""
    return {
        "job_name": array.job_name,
        "script": array.script,
        "run_ids": [run.path.name for run in array.runs],
        "commands": [list(array.command(run)) for run in array.runs],
        "gpu_hours": array.cost.gpu_hours,
        "cpu_hours": array.cost.cpu_hours,
        "node_hours": array.cost.node_hours,
        "files": array.cost.files,
    }


def _describe_cost(arrays: "Sequence[Array]") -> str:
    """The most that the jobs can cost, in one line."""
    from vmcjob.scheduler.arrays import Cost

    cost = sum((array.cost for array in arrays), Cost())
    hours = [(cost.gpu_hours, "GPU-hours"), (cost.cpu_hours, "CPU-hours")]
    if cost.is_exclusive:
        hours = [(cost.node_hours, "hours of whole nodes")]
    parts = ", ".join(f"{amount:.3g} {unit}" for amount, unit in hours)
    return f"at most {parts} and {count(cost.files, 'file')}, each attempt counted once"


def _document(
    receipt: "Receipt", arrays: "Sequence[Array]", *, is_dry: bool
) -> dict[str, Any]:  # a JSON document
    """What `submit --json` prints."""
    submitted = [
        {"run_id": item.run_id, "job_id": item.job_id, "run_dir": str(item.run.path.absolute())}
        | ({"put_aside": str(item.aside.path.absolute())} if item.aside else {})
        for item in receipt.submitted
    ]
    skipped = [
        {"run_id": item.run_id, "reason": item.reason, "run_dir": str(item.run.path.absolute())}
        for item in receipt.skipped
    ]
    dry = {"dry_run": True} if is_dry else {}
    jobs = {"jobs": [_describe_job(array) for array in arrays]} if arrays else {}
    return {"schema_version": 1, "submitted": submitted, "skipped": skipped} | dry | jobs


def _hint(receipt: "Receipt", where: str) -> None:
    """What to type next."""
    if receipt.submitted:
        first = receipt.submitted[0].run_id
        say(f"\n  vmcjob status -w{where}\n  vmcjob logs -f{where} {first}", "dim")
    else:
        say(f"\n  vmcjob status{where}\n  vmcjob aggregate{where}", "dim")


def _follow(receipt: "Receipt", where: str, as_json: bool) -> None:
    """Watch the runs until all have ended; ^C stops watching, not the runs."""
    from vmcjob.cli.follow import follow
    from vmcjob.cli.runs import draw_status

    skipped = [item for item in receipt.skipped if item.error is None]
    runs = [item.run for item in (*receipt.submitted, *skipped)]
    try:
        ended = follow(runs)
    except KeyboardInterrupt:
        say(f"\ndetached; the runs go on: vmcjob status -w{where}")
        raise typer.Exit(INTERRUPTED) from None
    (say if as_json else put)(draw_status(ended))
    receipt.wait()  # whoever comes next may move the runs away, or remove them
    if any(row.state != "FINISHED" for row in ended):
        raise typer.Exit(SOME_FAILED)


def _tasks(plans: "list[Plan]") -> "Mapping[str, Task]":
    """The planned tasks by run id, each once."""
    return {task.run_id: task for plan in plans for task in plan.tasks}


def _relative(path: Path) -> str:
    """A path as short as it can be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
