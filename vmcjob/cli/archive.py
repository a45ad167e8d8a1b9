"""The command `archive`: finished runs to single files, and back."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.options import AsJson, RunsRoot, SiteProfile, SomeSelectors, select_runs
from vmcjob.cli.screen import put_json, put_table, say
from vmcjob.cli.text import Cell, Heading, format_size, relative
from vmcjob.errors import RunDirError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir

COLUMNS = [
    Heading("run"),
    Heading("what"),
    Heading("files", "right"),
    Heading("size", "right"),
    Heading("file"),
]


class Archived(NamedTuple):
    """What happened, or would happen, to one run."""

    run_id: str
    archive: Path
    what: str  # "archived", "restored", "already archived"
    n_files: int  # in the store
    n_bytes: int
    is_removed: bool  # the source of the copy


class Choices(NamedTuple):
    """The options of the command."""

    is_back: bool
    is_removed: bool
    is_dry: bool


@app.command(cls=Command)
def archive(
    selectors: SomeSelectors,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Make the directory again from its archive.")
    ] = False,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Then remove the source, once both are equal."),
    ] = False,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be done, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put the results of finished runs into one file each.

    The file, run.zarr.zip, is compared array by array with the directory, which stays unless
    --remove is given. Everything reads archived runs as before.
    """
    choices = Choices(restore, remove, is_dry)
    done: list[Archived] = []
    errors: list[VmcJobError] = []
    for run in select_runs(selectors, site, runs):
        try:
            done.append(_treat(run, choices))
        except VmcJobError as error:
            errors.append(error)
    if as_json:
        put_json(_document(done, is_dry))
    else:
        _show(done, is_dry)
    if errors:
        raise combine(errors)


def _treat(run: "RunDir", choices: Choices) -> Archived:
    """Archive or restore one run; VmcJobError, without any change, if this is not possible."""
    treat = _restore if choices.is_back else _archive
    if choices.is_dry:
        return treat(run, choices)
    with run.lock():
        return treat(run, choices)


def _archive(run: "RunDir", choices: Choices) -> Archived:
    from vmcjob.store import archive as archives

    run_id, path = run.path.name, run.store_path
    _require_finished(run)
    archive, amount = archives.archive_of(path), archives.measure(path)
    if not path.exists():
        if not choices.is_dry:
            archives.sweep(path)
        return Archived(run_id, archive, "archived already", *amount, False)
    is_new = not archives.is_packed(path)
    if is_new and not choices.is_dry and (warning := archives.pack(path, run_id)):
        say(f"warning: {warning}")
    if choices.is_removed and not choices.is_dry:
        archives.remove_directory(path)
    what = "archived" if is_new or choices.is_removed else "archived already"
    return Archived(run_id, archive, what, *amount, choices.is_removed)


def _restore(run: "RunDir", choices: Choices) -> Archived:
    from vmcjob.store import archive as archives

    run_id, path = run.path.name, run.store_path
    archive, amount = archives.archive_of(path), archives.measure(path)
    if not archive.exists():
        raise RunDirError(f"{run_id}: has no archive ({archive})")
    is_new = not path.exists()
    if is_new and not choices.is_dry:
        archives.unpack(path)
    if choices.is_removed and not choices.is_dry:
        archives.remove_archive(path)
    what = "restored" if is_new or choices.is_removed else "restored already"
    return Archived(run_id, archive, what, *amount, choices.is_removed)


def _require_finished(run: "RunDir") -> None:
    """RunDirError for a run that may still be running, or that has lost results."""
    from vmcjob.runs.status import State, examine

    row = examine(run)
    if row.state is not State.FINISHED:
        raise RunDirError(f"{row.run_id}: is {row.state.lower()}; only finished runs are archived")


def _show(done: Sequence[Archived], is_dry: bool) -> None:
    """One line for each run, and the meaning of the result."""
    rows = [
        [
            Cell(one.run_id),
            Cell(one.what),
            Cell(str(one.n_files)),
            Cell(format_size(one.n_bytes)),
            Cell(relative(one.archive)),
        ]
        for one in done
    ]
    if rows:
        put_table(COLUMNS, rows)
    if is_dry:
        say("this would be done; without -n, it is")


def _document(done: Sequence[Archived], is_dry: bool) -> dict[str, Any]:  # a JSON document
    """What `archive --json` prints."""
    found = [
        {
            "run_id": one.run_id,
            "archive": str(one.archive.absolute()),
            "result": one.what,
            "files": one.n_files,
            "bytes": one.n_bytes,
            "removed": one.is_removed,
        }
        for one in done
    ]
    return {"schema_version": 1, "dry_run": is_dry, "runs": found}
