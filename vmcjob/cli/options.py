"""The options and arguments that several commands share."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.screen import say
from vmcjob.errors import NotFoundError

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir
    from vmcjob.site import Site

SELECTOR_HELP = "Run id or its beginning, name of a spec, run directory, glob, or @last."

SpecPaths = Annotated[list[Path], typer.Argument(metavar="SPEC...", help="Job specs (TOML).")]
Selector = Annotated[str, typer.Argument(metavar="RUN", help=SELECTOR_HELP)]
SomeSelectors = Annotated[list[str], typer.Argument(metavar="RUN...", help=SELECTOR_HELP)]
AnySelectors = Annotated[
    list[str] | None, typer.Argument(metavar="RUN...", help=SELECTOR_HELP + " All without.")
]
SiteProfile = Annotated[
    Path | None, typer.Option("--site", metavar="FILE", help="Site profile: where runs live.")
]
RunsRoot = Annotated[
    Path | None, typer.Option("--runs", metavar="DIR", help="Root of the run directories.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def resolve_site(profile: Path | None, runs: Path | None) -> "Site":
    """The site that the options name, its runs root replaced when they say so."""
    from vmcjob.site import load_site

    site = load_site(profile, os.environ)
    return site if runs is None else replace(site, runs=runs)


def select_runs(
    selectors: list[str] | None, profile: Path | None, runs: Path | None
) -> list["RunDir"]:
    """The runs that the selectors name, all without; says so when there are none."""
    from vmcjob.rundir import select

    if runs is not None and not os.path.isdir(runs):
        raise NotFoundError(f"{runs}: there is no such directory; --runs names it")
    root = resolve_site(profile, runs).runs
    found = select(root, selectors or [])
    if not found:
        say(f"no runs in {root}")
    return found
