"""From specs to runs: submit, and resume what has stopped half-way."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.hand_in import Wishes, hand_in
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

if TYPE_CHECKING:
    from vmcjob.plan import Plan
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
IsDry = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Print what would be submitted, and stop.")
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
    from vmcjob.resources import Request

    wishes = Wishes(
        resolve_site(site, runs),
        _where(site, runs),
        flags=Request(
            partition=partition,
            account=account,
            qos=qos,
            time=time,
            mem=mem,
            gres=gres,
            constraint=constraint,
            extra=tuple(extra or ()),
        ),
        max_parallel=max_parallel,
        is_local=is_local,
        is_followed=is_followed,
        is_dry=is_dry,
        as_json=as_json,
    )
    hand_in(read_plans(specs), wishes)


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
    partition: Partition = None,
    account: Account = None,
    qos: Qos = None,
    time: WallTime = None,
    mem: Memory = None,
    gres: Gres = None,
    constraint: Constraint = None,
    extra: Extra = None,
) -> None:
    """Go on with runs that stopped half-way, failed or died.

    Their own directories say what they compute; the spec file is not read again. What is queued,
    running or finished is left alone.
    """
    from vmcjob.resources import Request

    place = resolve_site(site, runs)
    wishes = Wishes(
        place,
        _where(site, runs),
        flags=Request(
            partition=partition,
            account=account,
            qos=qos,
            time=time,
            mem=mem,
            gres=gres,
            constraint=constraint,
            extra=tuple(extra or ()),
        ),
        max_parallel=max_parallel,
        is_local=is_local,
        is_followed=is_followed,
        is_dry=is_dry,
        as_json=as_json,
    )
    folders: dict[Path, list[Plan]] = {}
    for run in select_runs(selectors, site, runs):
        folders.setdefault(run.path.absolute().parent, []).append(_plan_again(run))
    for folder, plans in folders.items():
        hand_in(plans, replace(wishes, place=replace(place, runs=folder)))


def _plan_again(run: "RunDir") -> "Plan":
    """The plan of one run, from its own directory."""
    from vmcjob.plan import Plan, Task
    from vmcjob.spec import load_resolved

    record = run.read_record()
    spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    task = Task(record.run_id, record.name, record.point, record.seed, spec, record.science_sha256)
    return Plan(record.source, (task,))


def _where(site: Path | None, runs: Path | None) -> str:
    """The options that make another command look where this one did."""
    options = {"--site": site, "--runs": runs}
    return "".join(f" {name} {quote(str(path))}" for name, path in options.items() if path)
