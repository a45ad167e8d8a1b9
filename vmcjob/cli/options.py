"""Options and arguments that several commands share."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.complete import complete_runs, complete_specs
from vmcjob.cli.newest import without_replaced
from vmcjob.cli.screen import say
from vmcjob.cli.text import format_point
from vmcjob.errors import NotFoundError, UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir
    from vmcjob.site import Site

SELECTOR_HELP = (
    "Run id or its beginning, name of a spec or of a row, run directory, glob, or @last."
)

SpecPaths = Annotated[
    list[Path],
    typer.Argument(metavar="SPEC...", help="Job specs (TOML).", autocompletion=complete_specs),
]
Selector = Annotated[
    str, typer.Argument(metavar="RUN", help=SELECTOR_HELP, autocompletion=complete_runs)
]
SomeSelectors = Annotated[
    list[str], typer.Argument(metavar="RUN...", help=SELECTOR_HELP, autocompletion=complete_runs)
]
AnySelectors = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN...", help=SELECTOR_HELP + " All without.", autocompletion=complete_runs
    ),
]
SiteProfile = Annotated[
    Path | None, typer.Option("--site", metavar="FILE", help="Site profile: where runs live.")
]
RunsRoot = Annotated[
    Path | None, typer.Option("--runs", metavar="DIR", help="Root of the run directories.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def resolve_site(profile: Path | None, runs: Path | None) -> "Site":
    """The site that the options name, with the runs root that they name.

    A private site closes the files of this process, and of all processes that it starts, to others.
    """
    from vmcjob.site import load_site

    site = load_site(profile, os.environ)
    if site.private:
        os.umask(0o077)
    return site if runs is None else replace(site, runs=runs)


def resolve_root(profile: Path | None, runs: Path | None) -> Path:
    """The runs root that the options name; NotFoundError if it was named and does not exist."""
    require_root(runs)
    place = resolve_site(profile, runs)
    root = place.runs
    if root != type(place).runs and not os.path.isdir(root):  # named by the user, not the default
        raise NotFoundError(
            f"{root}: there is no such directory; {_who_names_it(profile)} names it"
        )
    return root


def require_root(runs: Path | None) -> None:
    """NotFoundError if --runs names a directory that does not exist."""
    if runs is not None and not os.path.isdir(runs):
        raise NotFoundError(f"{runs}: there is no such directory; --runs names it")


def select_runs(
    selectors: list[str] | None, profile: Path | None, runs: Path | None
) -> list["RunDir"]:
    """The runs that the selectors name, by default all; prints a sentence if there are none."""
    from vmcjob.rundir import select

    root = resolve_root(profile, runs)
    found = select(root, selectors or [])
    if not found:
        say(f"no runs in {root}")
    return found


def row_name(run: "RunDir") -> str:
    """The name of the run's row in tables, like "h2 R=1.4", as far as its record is readable."""
    try:
        record = run.read_record()
    except VmcJobError:
        return run.path.name
    return f"{record.name} {format_point(record.point)}".rstrip()


def _who_names_it(profile: Path | None) -> str:
    """The source of the runs root, other than --runs and the default."""
    if os.environ.get("VMCJOB_RUNS"):
        return "$VMCJOB_RUNS"
    return f"the site profile{'' if profile is None else f' {profile}'}"


def select_run(selector: str, profile: Path | None, runs: Path | None) -> "RunDir":
    """The run that the selector names, the newest if it was trained on; UsageError for several."""
    found = select_runs([selector], profile, runs)
    if len(found) > 1:
        found = without_replaced(found, [selector])
    return the_only_run(selector, found)


def the_only_run(selector: str, found: "list[RunDir]") -> "RunDir":
    """The run, if the selector names only one; UsageError for several."""
    if len(found) > 1:
        rows = {run: f"'{row_name(run)}'" for run in found}
        are_apart = len(set(rows.values())) == len(found)
        names = [rows[run] if are_apart else run.path.name for run in found[:3]]
        some = ", ".join(names) + (", ..." if found[3:] else "")
        what = "row" if are_apart else "id"
        raise UsageError(f"'{selector}' names {len(found)} runs ({some}); give the {what} of one")
    return found[0]
