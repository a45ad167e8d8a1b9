"""Where `aggregate -o` may write its table, and how: never over what is not a table of ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.screen import say
from vmcjob.errors import UsageError

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir
    from vmcjob.table import Table

STDOUT = Path("-")
HEADER = b"name,runs,n_steps,energy,"  # how a table begins, whatever columns come behind
BINARY = {".parquet": b"PAR1", ".nc": b"CDF"}  # other forms by suffix, and how their files begin


def require_writable(path: Path, chosen: "Sequence[RunDir]") -> None:
    """UsageError where a table would do harm; before the work that it takes to make one."""
    if path == STDOUT:
        return
    refuse_folders_of_runs(path, chosen)
    try:
        if not path.exists():
            return
        if path.is_dir():
            raise UsageError(f"{path}: is a directory; name a file in it")
        if path.is_file() and not _is_table(path):
            raise UsageError(
                f"{path}: exists and is no table of vmcjob; remove it, or write to another file"
            )
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def write_table(path: Path, table: "Table") -> None:
    """Write the table as its file's suffix says, by default as CSV.

    A file appears as a whole; /dev/stderr and the like get CSV as they take it.
    """
    from vmcjob.rundir.files import write_whole

    text = "" if path.suffix in BINARY else table.to_csv()
    try:
        if path.suffix in BINARY:
            _write_binary(path, table)
        elif path.exists() and not path.is_file():
            path.write_text(text, "utf-8")
        else:
            write_whole(path.resolve(), text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"wrote {path}", "dim")


def _write_binary(path: Path, table: "Table") -> None:
    """A Parquet or netCDF file, beside its place at first."""
    from vmcjob.frames import write_netcdf, write_parquet

    unfinished = path.resolve().with_name(f".{path.name}.partial")
    try:
        if path.suffix == ".nc":
            write_netcdf(table.to_dataset(), unfinished)
        else:
            write_parquet(table.to_columns(), unfinished)
        unfinished.replace(path.resolve())
    finally:
        unfinished.unlink(missing_ok=True)


def refuse_folders_of_runs(path: Path, chosen: "Sequence[RunDir]") -> None:
    """UsageError for a file within a run directory or a folder of ours beside them."""
    from vmcjob.rundir import RunDir

    roots = {run.path.resolve().parent for run in chosen}
    for folder in path.resolve().parents:
        is_hidden = folder.parent in roots and folder.name.startswith(".")
        if is_hidden or RunDir(folder).exists:
            raise UsageError(f"{path}: {folder.name} belongs to runs; write it elsewhere")


def _is_table(path: Path) -> bool:
    """Whether a file is empty or one of our tables, which may be replaced."""
    header = BINARY.get(path.suffix, HEADER)
    with open(path, "rb") as file:
        begin = file.read(len(header))
    return begin in (b"", header)
