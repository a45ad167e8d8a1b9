"""From specs to runs: submit, resume what has stopped half-way, rerun what has ended."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.options import (
    Account,
    AsJson,
    Constraint,
    Extra,
    Gres,
    Memory,
    Partition,
    Qos,
    RunsRoot,
    SiteProfile,
    SomeSelectors,
    SpecPaths,
    WallTime,
    resolve_site,
    select_runs,
)
from vmcjob.cli.specs import read_plans
from vmcjob.cli.submission import CommandOptions, submit_plans
from vmcjob.errors import UsageError

if TYPE_CHECKING:
    from vmcjob.plan import Plan
    from vmcjob.resources import Request
    from vmcjob.rundir import RunDir

IsLocal = Annotated[
    bool, typer.Option("--local", help="Run on this machine, whatever the site says.")
]
MaxParallel = Annotated[
    int | None,
    typer.Option(
        "--max-parallel", min=1, metavar="N", help="Run at most N at a time. [default: the site's]"
    ),
]
IsFollowed = Annotated[
    bool, typer.Option("--follow", "-f", help="Show progress; ^C leaves the runs alone.")
]
MoreSteps = Annotated[
    int | None,
    typer.Option(
        "--more-steps",
        min=1,
        metavar="N",
        help="Evaluate finished runs for N steps more, each in a new run with all that it has.",
    ),
]
IsDry = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Print what would be submitted, and stop.")
]

IsChecked = Annotated[
    bool,
    typer.Option("--check", help="With -n: also ask the cluster what it would take, and when."),
]


@app.command(cls=Command)
def submit(  # noqa: PLR0913 -- a command has as many parameters as options
    specs: SpecPaths,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    is_local: IsLocal = False,
    max_parallel: MaxParallel = None,
    is_followed: IsFollowed = False,
    as_json: AsJson = False,
    is_dry: IsDry = False,
    is_checked: IsChecked = False,
    partition: Partition = None,
    account: Account = None,
    qos: Qos = None,
    time: WallTime = None,
    mem: Memory = None,
    gres: Gres = None,
    constraint: Constraint = None,
    extra: Extra = None,
) -> None:
    """Start the runs of the specs and return at once.

    Submitting twice is harmless: what is queued, running or finished is left alone, and what was
    interrupted continues.
    """
    options = CommandOptions(
        resolve_site(site, runs),
        _where(site, runs),
        request=_request(partition, account, qos, time, mem, gres, constraint, extra),
        max_parallel=max_parallel,
        is_local=is_local,
        is_followed=is_followed,
        is_dry=is_dry,
        is_checked=is_checked,
        as_json=as_json,
    )
    submit_plans({options.place.runs: read_plans(specs)}, options)


@app.command(cls=Command)
def resume(  # noqa: PLR0913 -- a command has as many parameters as options
    selectors: SomeSelectors,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    is_local: IsLocal = False,
    max_parallel: MaxParallel = None,
    is_followed: IsFollowed = False,
    as_json: AsJson = False,
    is_dry: IsDry = False,
    is_checked: IsChecked = False,
    partition: Partition = None,
    account: Account = None,
    qos: Qos = None,
    time: WallTime = None,
    mem: Memory = None,
    gres: Gres = None,
    constraint: Constraint = None,
    extra: Extra = None,
    more_steps: MoreSteps = None,
) -> None:
    """Go on with runs that stopped, or with finished ones for longer.

    Their own directories say what they compute; the spec file is not read again. What is queued,
    running or finished is left alone, unless --more-steps asks for a smaller error bar.
    """
    place = resolve_site(site, runs)
    options = CommandOptions(
        place,
        _where(site, runs),
        request=_request(partition, account, qos, time, mem, gres, constraint, extra),
        max_parallel=max_parallel,
        is_local=is_local,
        is_followed=is_followed,
        is_dry=is_dry,
        is_checked=is_checked,
        as_json=as_json,
    )
    chosen = select_runs(selectors, site, runs)
    if more_steps is not None:
        chosen = _longest(chosen)
        _require_finished(chosen)
    _submit_again(chosen, options, more_steps)


@app.command(cls=Command)
def rerun(  # noqa: PLR0913 -- a command has as many parameters as options
    selectors: SomeSelectors,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    is_local: IsLocal = False,
    max_parallel: MaxParallel = None,
    is_followed: IsFollowed = False,
    as_json: AsJson = False,
    is_dry: IsDry = False,
    is_checked: IsChecked = False,
    partition: Partition = None,
    account: Account = None,
    qos: Qos = None,
    time: WallTime = None,
    mem: Memory = None,
    gres: Gres = None,
    constraint: Constraint = None,
    extra: Extra = None,
) -> None:
    """Begin runs anew, from their first step.

    What they had is put aside, whole, in a directory below .old of the runs root. Their own
    directories say what they compute. Runs that are queued or running are refused.
    """
    options = CommandOptions(
        resolve_site(site, runs),
        _where(site, runs),
        request=_request(partition, account, qos, time, mem, gres, constraint, extra),
        max_parallel=max_parallel,
        is_local=is_local,
        is_followed=is_followed,
        is_dry=is_dry,
        is_checked=is_checked,
        is_restart=True,
        as_json=as_json,
    )
    chosen = select_runs(selectors, site, runs)
    _refuse_active(chosen)
    _submit_again(chosen, options)


def _request(
    partition: Partition,
    account: Account,
    qos: Qos,
    time: WallTime,
    mem: Memory,
    gres: Gres,
    constraint: Constraint,
    extra: Extra,
) -> "Request":
    """What the options ask SLURM for."""
    from vmcjob.resources import Request

    return Request(
        partition=partition,
        account=account,
        qos=qos,
        time=time,
        mem=mem,
        gres=gres,
        constraint=constraint,
        extra=tuple(extra or ()),
    )


def _refuse_active(chosen: "list[RunDir]") -> None:
    """UsageError if something will still happen to one of the runs."""
    from vmcjob import scheduler
    from vmcjob.status import examine

    queue = scheduler.look(chosen)
    rows = [examine(run, queue) for run in chosen]
    if active := [row for row in rows if row.state.is_active]:
        words = (f"{row.run_id}: {row.state.lower()}; cancel it first, or wait" for row in active)
        raise UsageError("\n".join(words))


def _longest(chosen: "list[RunDir]") -> "list[RunDir]":
    """Without runs that others of them have gone on from already."""
    continued = {run.continues for run in chosen}
    return [run for run in chosen if run.path.name not in continued]


def _require_finished(chosen: "list[RunDir]") -> None:
    """UsageError if one of the runs has steps left to do."""
    from vmcjob import scheduler
    from vmcjob.status import State, examine

    queue = scheduler.look(chosen)
    rows = [examine(run, queue) for run in chosen]
    if unfinished := [row for row in rows if row.state is not State.FINISHED]:
        words = "--more-steps is for finished runs: without it, resume goes on where this one is"
        raise UsageError(
            "\n".join(f"{row.run_id}: {row.state.lower()}; {words}" for row in unfinished)
        )


def _submit_again(
    chosen: "list[RunDir]", options: CommandOptions, more_steps: int | None = None
) -> None:
    """Hand runs in as their own directories describe them, each in its own runs root."""
    folders: dict[Path, list[Plan]] = {}
    for run in chosen:
        plan = _plan_again(run, more_steps)
        folders.setdefault(run.path.absolute().parent, []).append(plan)
    submit_plans(folders, options)


def _plan_again(run: "RunDir", more_steps: int | None) -> "Plan":
    """The plan of one run, or of one that goes on from it, from its own directory."""
    from vmcjob.plan import Plan, Task, make_longer
    from vmcjob.spec import load_resolved

    record = run.read_record()
    if record.run_id != run.path.name:
        words = f"was {record.run_id} and has been put aside or renamed; it can only be looked at"
        raise UsageError(f"{run.path}: {words}")
    spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    task = Task(record.run_id, record.name, record.point, record.seed, spec, record.science_sha256)
    return Plan(record.source, (make_longer(task, more_steps) if more_steps else task,))


def _where(site: Path | None, runs: Path | None) -> str:
    """The options that make another command look where this one did."""
    options = {"--site": site, "--runs": runs}
    return "".join(f" {name} {quote(str(path))}" for name, path in options.items() if path)
