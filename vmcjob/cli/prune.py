"""Cleaning up: what can go of a runs root, and how much that frees."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.options import AnySelectors, AsJson, RunsRoot, SiteProfile, resolve_site
from vmcjob.cli.screen import put_json, put_table, say
from vmcjob.cli.text import Cell, Column, count, format_duration, format_size
from vmcjob.errors import RunDirError, UsageError, combine

if TYPE_CHECKING:
    from vmcjob.prune import Item, Policy
    from vmcjob.status import State

DAY_S = 86400.0
COLUMNS = [
    Column("what"),
    Column("of"),
    Column("age", "right"),
    Column("files", "right"),
    Column("size", "right"),
]


@app.command(cls=Command)
def prune(
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, metavar="DAYS", help="What is younger stays.")
    ] = 30.0,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Remove runs of this state too, with their results."
        ),
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be removed, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old logs, records of jobs, and what was put aside.

    The logs are those of finished runs, and the jobs those that no unfinished run refers to.
    Results stay, but for those that `rerun` has put aside, unless --state names the runs' state.
    What somebody works on stays.
    """
    from vmcjob.prune import Policy
    from vmcjob.scheduler import queue_lock

    root = resolve_site(site, runs).runs.absolute()
    policy = Policy(time.time() - older_than * DAY_S, frozenset(map(_read_state, states or [])))
    if is_dry or not root.is_dir():
        items, errors = _find(root, selectors, policy), []
    else:
        with queue_lock(root):
            items, errors = _remove(_find(root, selectors, policy))
    if as_json:
        put_json(_document(items, is_dry))
    else:
        _show(items, is_dry)
    if errors:
        raise combine(errors)


def _find(root: Path, selectors: list[str] | None, policy: "Policy") -> "list[Item]":
    """What can go; SchedulerError if SLURM, which knows what is still wanted, cannot be asked."""
    from vmcjob import scheduler
    from vmcjob.prune import find
    from vmcjob.rundir import select
    from vmcjob.status import rows

    chosen = select(root, selectors or [])
    if strangers := [run for run in chosen if run.path.absolute().parent != root]:
        raise UsageError(f"{strangers[0].path}: is not in {root}; name its root with --runs")
    found, _ = rows(chosen, scheduler.look(chosen))  # who does not say what it is, stays
    return find(root, found, policy, is_all=not selectors)


def _remove(items: "list[Item]") -> "tuple[list[Item], list[RunDirError]]":
    """What is gone then, and why the rest is not."""
    from vmcjob.prune import remove

    removed: list[Item] = []
    errors: list[RunDirError] = []
    for item in items:
        try:
            remove(item)
        except RunDirError as error:
            errors.append(error)
        else:
            removed.append(item)
    return removed, errors


def _read_state(word: str) -> "State":
    """The state that a user names; UsageError if its runs cannot be removed."""
    from vmcjob.prune import REMOVABLE
    from vmcjob.status import State

    found = State.__members__.get(word.upper())
    if found is None or found not in REMOVABLE:
        known = ", ".join(sorted(state.lower() for state in REMOVABLE))
        raise UsageError(f"--state: expected one of {known}, got '{word}'")
    return found


def _show(items: "list[Item]", is_dry: bool) -> None:
    """One line for each thing, and the sum."""
    now = time.time()
    rows = [
        [
            Cell(item.kind),
            Cell(item.name),
            Cell(format_duration(now - item.changed_at)),
            Cell(str(item.n_files)),
            Cell(format_size(item.size)),
        ]
        for item in items
    ]
    if rows:
        put_table(COLUMNS, rows)
    size, files = sum(item.size for item in items), sum(item.n_files for item in items)
    what = f"{format_size(size)} in {count(files, 'file')}"
    say(f"would free {what}; without -n, this is removed" if is_dry else f"freed {what}")


def _document(items: "list[Item]", is_dry: bool) -> dict[str, Any]:  # a JSON document
    """What `prune --json` prints."""
    found = [
        {
            "what": str(item.kind),
            "of": item.name,
            "paths": [str(path) for path in item.paths],
            "changed_at": item.changed_at,
            "files": item.n_files,
            "bytes": item.size,
        }
        for item in items
    ]
    total = sum(item.size for item in items)
    return {"schema_version": 1, "dry_run": is_dry, "items": found, "bytes": total}
