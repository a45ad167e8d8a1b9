"""From specs to runs: validate, submit."""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import INTERRUPTED, Command, app
from vmcjob.cli.options import AsJson, RunsRoot, SiteProfile, SpecPaths, resolve_site
from vmcjob.cli.screen import put, put_json, put_table, say
from vmcjob.cli.text import Cell, Column, count, format_point
from vmcjob.errors import IncompleteError, NotFoundError, SpecError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.plan import Plan, Task
    from vmcjob.scheduler import Receipt

SOME_FAILED = IncompleteError.exit_code


@app.command(cls=Command)
def validate(specs: SpecPaths) -> None:
    """Check specs and write nothing; all complaints at once."""
    plans = read_plans(specs)
    columns = [Column("spec"), Column("verdict"), Column("plan")]
    put_table(
        columns,
        [
            [Cell(plan.source), Cell("valid", "green"), Cell(count(len(plan.tasks), "run"))]
            for plan in plans
        ],
    )


@app.command(cls=Command)
def submit(
    specs: SpecPaths,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    is_local: Annotated[
        bool, typer.Option("--local", help="Run on this machine, whatever the site says.")
    ] = False,
    max_parallel: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run at most N at a time. [default: the site's]"),
    ] = None,
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Show progress; ^C leaves the runs alone.")
    ] = False,
    as_json: AsJson = False,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Print what would be submitted, and stop.")
    ] = False,
) -> None:
    """Start the runs of the specs and return at once.

    Submitting twice is harmless: what is queued, running or finished is left alone, and what was
    interrupted continues.
    """
    from vmcjob import scheduler

    plans = read_plans(specs)
    place = resolve_site(site, runs)
    chosen = scheduler.choose(place.scheduler, is_local)
    n_slots = max_parallel or place.max_parallel
    say(f"{chosen} scheduler: on this machine, {count(n_slots, 'run')} at a time")
    _say_what_only_a_cluster_heeds(plans)
    if is_dry:
        receipt = scheduler.preview(place.runs, plans)
        _show_preview(receipt, plans, as_json)
    else:
        receipt = scheduler.submit(place.runs, plans, max_parallel=n_slots)
        _show_receipt(receipt, plans, as_json)
    errors = [item.error for item in receipt.skipped if item.error]
    for error in errors:
        say(str(error))
    where = _where(site, runs)
    if is_followed and not is_dry:
        _follow(receipt, where, as_json)
    elif not (as_json or is_dry):
        _hint(receipt, where)
    if errors:
        raise typer.Exit(combine(errors).exit_code)


def read_plans(specs: list[Path]) -> "list[Plan]":
    """The plans of all specs, or the complaints about all specs."""
    from vmcjob.plan import make_plan
    from vmcjob.spec import read_spec

    plans: list[Plan] = []
    errors: list[VmcJobError] = []
    for path in specs:
        try:
            plans.append(make_plan(read_spec(path)))
        except (SpecError, NotFoundError) as error:
            errors.append(error)
    if errors:
        raise combine(errors)
    return plans


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


def _show_receipt(receipt: "Receipt", plans: "list[Plan]", as_json: bool) -> None:
    """One line per run, in the order of the specs."""
    if as_json:
        put_json(_document(receipt))
        return
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


def _show_preview(receipt: "Receipt", plans: "list[Plan]", as_json: bool) -> None:
    """What would be submitted, as the worker would read it."""
    from vmcjob.spec import dump_spec

    if as_json:
        put_json(_document(receipt) | {"dry_run": True})
        return
    tasks = _tasks(plans)
    for item in receipt.submitted:
        put(f"# would be submitted: {_relative(item.run.path)}")
        put(dump_spec(tasks[item.run_id].spec))
    for item in receipt.skipped:
        put(f"# would be skipped: {_relative(item.run.path)}, {item.reason}")


def _document(receipt: "Receipt") -> dict[str, Any]:  # a JSON document
    """What `submit --json` prints."""
    submitted = [
        {"run_id": item.run_id, "job_id": item.job_id, "run_dir": str(item.run.path.absolute())}
        for item in receipt.submitted
    ]
    skipped = [
        {"run_id": item.run_id, "reason": item.reason, "run_dir": str(item.run.path.absolute())}
        for item in receipt.skipped
    ]
    return {"schema_version": 1, "submitted": submitted, "skipped": skipped}


def _where(site: Path | None, runs: Path | None) -> str:
    """The options that make another command look where this one did."""
    options = {"--site": site, "--runs": runs}
    return "".join(f" {name} {quote(str(path))}" for name, path in options.items() if path)


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
    if any(row.state != "FINISHED" for row in ended):
        raise typer.Exit(SOME_FAILED)


def _tasks(plans: "list[Plan]") -> "Mapping[str, Task]":
    """The planned tasks by run id, each once."""
    return {task.run_id: task for plan in plans for task in plan.tasks}


def _relative(path: Path) -> str:
    """A path as short as it can be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
