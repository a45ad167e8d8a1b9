"""The command `prune`: find and remove files that are no longer needed."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.options import AnySelectors, AsJson, RunsRoot, SiteProfile, resolve_root
from vmcjob.cli.screen import put_json, put_table, say
from vmcjob.cli.text import Cell, Heading, count, format_duration, format_size
from vmcjob.errors import UsageError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.runs.status import State
    from vmcjob.scheduler.prune import Item, Policy

DAY_S = 86400.0
COLUMNS = [
    Heading("what"),
    Heading("of"),
    Heading("age", "right"),
    Heading("files", "right"),
    Heading("size", "right"),
]


@app.command(cls=Command)
def prune(
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, metavar="DAYS", help="Newer files stay.")
    ] = 30.0,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Remove runs of this state too, with their results."
        ),
    ] = None,
    archived: Annotated[
        bool,
        typer.Option("--archived", help="Remove directories of results that are archived, too."),
    ] = False,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be removed, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old logs, records of jobs, and what `rerun` put aside.

    Logs are those of finished runs; jobs are those that no unfinished run needs. Other results
    stay, unless --state names the runs' state. Live runs and archives are never touched. With
    --archived, run.zarr is removed if it equals its archive.
    """
    from vmcjob.scheduler.prune import Policy

    root = resolve_root(site, runs).absolute()
    named = frozenset(map(_read_state, states or []))
    policy = Policy(time.time() - older_than * DAY_S, named, archived)
    found, errors = _prune(root, selectors, policy, is_dry)
    if as_json:
        put_json(_document(found, is_dry))
    else:
        _show(found, is_dry)
    if errors:
        raise combine(errors)


class Found(NamedTuple):
    """Removable or removed items, and named runs that stay because they are archived."""

    items: "list[Item]"
    kept: list[str]


def _prune(
    root: Path, selectors: list[str] | None, policy: "Policy", is_dry: bool
) -> "tuple[Found, list[VmcJobError]]":
    """Removed items (or items to remove), and errors about the others."""
    from vmcjob.scheduler import queue_lock
    from vmcjob.scheduler.prune import Kind, remove, require_archived

    with nullcontext() if is_dry or not root.is_dir() else queue_lock(root):
        found = _find(root, selectors, policy)
        copies = [item for item in found.items if item.kind is Kind.COPY]
        others = [item for item in found.items if item.kind is not Kind.COPY]
        items, errors = (others, []) if is_dry else _treat(others, remove)
    # Compared outside the lock: it takes long, and a submission would wait for the lock.
    more, more_errors = _treat(copies, require_archived if is_dry else remove)
    items = sorted([*items, *more], key=lambda item: -item.size)
    return Found(items, found.kept), [*errors, *more_errors]


def _find(root: Path, selectors: list[str] | None, policy: "Policy") -> Found:
    """The removable items; SchedulerError if SLURM, which knows the live jobs, cannot be asked."""
    from vmcjob import scheduler
    from vmcjob.rundir import select
    from vmcjob.runs.status import rows
    from vmcjob.scheduler.prune import find, kept

    chosen = select(root, selectors or [])
    if strangers := [run for run in chosen if run.path.absolute().parent != root]:
        raise UsageError(f"{strangers[0].path}: is not in {root}; name its root with --runs")
    found, _ = rows(chosen, scheduler.look(chosen))  # runs that cannot be identified stay
    return Found(find(root, found, policy, is_all=not selectors), kept(found, policy))


def _treat(
    items: "list[Item]", treat: "Callable[[Item], None]"
) -> "tuple[list[Item], list[VmcJobError]]":
    """The items for which `treat` succeeded, and errors about the others."""
    treated: list[Item] = []
    errors: list[VmcJobError] = []
    for item in items:
        try:
            treat(item)
        except VmcJobError as error:
            errors.append(error)
        else:
            treated.append(item)
    return treated, errors


def _read_state(word: str) -> "State":
    """The state that a user names; UsageError if its runs cannot be removed."""
    from vmcjob.runs.status import State
    from vmcjob.scheduler.prune import REMOVABLE

    found = State.__members__.get(word.upper())
    if found is None or found not in REMOVABLE:
        known = ", ".join(sorted(state.lower() for state in REMOVABLE))
        raise UsageError(f"--state: expected one of {known}, got '{word}'")
    return found


def _show(found: Found, is_dry: bool) -> None:
    """Print one line for each item, and the sum."""
    now, items = time.time(), found.items
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
    for run_id in found.kept:
        say(f"stays, for it is archived: {run_id}")
    say(f"would free {what}; without -n, this is removed" if is_dry else f"freed {what}")


def _document(found: Found, is_dry: bool) -> dict[str, Any]:  # a JSON document
    """What `prune --json` prints."""
    items = [
        {
            "what": str(item.kind),
            "of": item.name,
            "paths": [str(path) for path in item.paths],
            "changed_at": item.changed_at,
            "files": item.n_files,
            "bytes": item.size,
        }
        for item in found.items
    ]
    total = sum(item.size for item in found.items)
    facts = {"items": items, "archived": found.kept, "bytes": total}
    return {"schema_version": 1, "dry_run": is_dry, **facts}
