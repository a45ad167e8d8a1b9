"""Plans handed in to a scheduler, or shown: what submit and resume have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vmcjob.cli.app import INTERRUPTED
from vmcjob.cli.preview import NOTHING, Preview, preview, show_preview
from vmcjob.cli.screen import put_drawn, put_json, put_table, say
from vmcjob.cli.specs import require_memory
from vmcjob.cli.text import Cell, Column, count, format_point, relative
from vmcjob.errors import IncompleteError, UsageError, combine

if TYPE_CHECKING:
    from vmcjob.plan import Plan, Task
    from vmcjob.resources import Request
    from vmcjob.scheduler import Receipt
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
    is_checked: bool = False  # a dry run that asks the cluster
    is_anew: bool = False  # from their first step, whatever they have
    as_json: bool = False


def hand_in(folders: "Mapping[Path, list[Plan]]", wishes: Wishes) -> None:
    """Start the plans' runs, each in its runs root, and say so, or show what would be started."""
    from vmcjob import scheduler

    for root, plans in folders.items():
        scheduler.require_starts(root, plans)
    receipts: list[Receipt] = []
    previews: list[Preview] = []
    try:
        for root, plans in folders.items():
            here = replace(wishes, place=replace(wishes.place, runs=root))
            receipt, jobs = _start(plans, here)
            receipts.append(receipt)
            previews.append(jobs)
            if not wishes.as_json:
                show_preview(receipt, _tasks(plans), jobs) if here.is_dry else _show(receipt, plans)
    finally:  # what has been submitted is told, whatever stands in the way of the rest
        if wishes.as_json and receipts:
            put_json(_document(_join(receipts), previews, is_dry=wishes.is_dry))
    _look_after(_join(receipts), wishes)
    if refusals := [refusal for jobs in previews for refusal in jobs.refusals()]:
        raise combine(refusals)


def _start(plans: "list[Plan]", wishes: Wishes) -> "tuple[Receipt, Preview]":
    """What became of the runs of one root, or would; in a dry run for SLURM, its jobs."""
    from vmcjob import scheduler

    is_slurm = scheduler.choose(wishes.place.scheduler, wishes.is_local) == "slurm"
    if wishes.is_checked and not (is_slurm and wishes.is_dry):
        why = "goes with -n, which writes nothing" if is_slurm else "the runs stay on this machine"
        raise UsageError(f"--check asks a cluster what it would do: {why}")
    receipt, jobs = (_submit_to_slurm if is_slurm else _submit_here)(plans, wishes)
    return scheduler.take_over(receipt, plans, is_dry=wishes.is_dry), jobs


def _submit_here(plans: "list[Plan]", wishes: Wishes) -> "tuple[Receipt, Preview]":
    """Run on this machine."""
    from vmcjob import scheduler
    from vmcjob.resources import Request

    if wishes.flags != Request():
        raise UsageError("options of SLURM jobs were given, but the runs stay on this machine")
    root, anew = wishes.place.runs, wishes.is_anew
    n_slots = wishes.max_parallel or wishes.place.max_parallel
    say(f"local scheduler: on this machine, {count(n_slots, 'run')} at a time")
    _say_what_only_a_cluster_heeds(plans)
    require_memory(plans)
    if wishes.is_dry:
        return scheduler.preview(root, plans, is_anew=anew), NOTHING
    return scheduler.submit(root, plans, max_parallel=n_slots, is_anew=anew), NOTHING


def _submit_to_slurm(plans: "list[Plan]", wishes: Wishes) -> "tuple[Receipt, Preview]":
    """Give the runs to SLURM."""
    from vmcjob.scheduler import slurm

    say("slurm scheduler: as jobs of this cluster")
    place, anew = wishes.place, wishes.is_anew
    request = place.runs, plans, place, wishes.flags, wishes.max_parallel
    if wishes.is_dry:
        draft = slurm.draft(*request, is_anew=anew)
        return draft.receipt, preview(draft.arrays, is_checked=wishes.is_checked)
    return slurm.submit(*request, is_anew=anew), NOTHING


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
    for words in dict.fromkeys(map(str, errors)):
        say(words)
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
            Cell(relative((submitted.get(run_id) or skipped[run_id].run).path)),
        ]
        for run_id, task in tasks.items()
    ]
    put_table(columns, rows)
    for item in receipt.submitted:
        if item.aside is not None:
            say(f"put aside: {relative(item.aside.path)}", "dim")


def _document(
    receipt: "Receipt", previews: "Sequence[Preview]", *, is_dry: bool
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
    jobs = [job for jobs in previews for job in jobs.document()]
    runs = {"schema_version": 1, "submitted": submitted, "skipped": skipped}
    return runs | dry | ({"jobs": jobs} if jobs else {})


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
    put_drawn(draw_status(ended), is_talk=as_json)
    receipt.wait()  # whoever comes next may move the runs away, or remove them
    if any(row.state != "FINISHED" for row in ended):
        raise typer.Exit(SOME_FAILED)


def _tasks(plans: "list[Plan]") -> "Mapping[str, Task]":
    """The planned tasks by run id, each once."""
    return {task.run_id: task for plan in plans for task in plan.tasks}
