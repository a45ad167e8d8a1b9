"""Files of `aggregate -o`: they replace only earlier tables of vmcjob."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.outfile import require_folder, write_output
from vmcjob.cli.screen import say
from vmcjob.errors import UsageError

if TYPE_CHECKING:
    from vmcjob.results.table import Table
    from vmcjob.rundir import RunDir

STDOUT = Path("-")
HEADER = b"name,runs,n_steps,energy,"  # how a table begins, whatever columns come behind
BINARY = {".parquet": b"PAR1", ".nc": b"CDF"}  # other forms by suffix, and how their files begin


def require_writable(path: Path | None, chosen: "Sequence[RunDir]") -> None:
    """UsageError, before any work, if a table cannot or must not be written there."""
    if path is None or path == STDOUT:
        return
    refuse_folders_of_runs(path, chosen)
    try:
        require_folder(path)
        if path.is_dir():
            raise UsageError(f"{path}: is a directory; name a file in it")
        if path.is_file() and not _is_table(path):
            raise UsageError(
                f"{path}: exists and is no table of vmcjob; remove it, or write to another file"
            )
        is_device = _is_device(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    if not is_device and _ending(path) not in ("", ".csv", *BINARY):
        raise UsageError(
            f"{path}: tables are .csv, .parquet or .nc; name it so, or - for CSV on standard "
            "output, where --json prints JSON"
        )


def write_table(path: Path, table: "Table") -> None:
    """Write the table in the format of the file's ending, by default CSV.

    A file appears in one step; devices such as /dev/stderr get CSV directly.
    """
    is_binary = _ending(path) in BINARY
    if not is_binary and not _is_device(path):
        write_output(path, table.to_csv())
        return
    try:
        if is_binary:
            _write_binary(path, table)
        else:
            path.write_text(table.to_csv(), "utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"wrote {path}", "dim")


def _write_binary(path: Path, table: "Table") -> None:
    """Write a Parquet or netCDF file, first beside its place."""
    from vmcjob.results.frames import write_netcdf, write_parquet

    unfinished = path.resolve().with_name(f".{path.name}.partial")
    try:
        if _ending(path) == ".nc":
            write_netcdf(table.to_dataset(), unfinished)
        else:
            write_parquet(table.to_columns(), unfinished)
        unfinished.replace(path.resolve())
    finally:
        unfinished.unlink(missing_ok=True)


def refuse_folders_of_runs(path: Path, chosen: "Sequence[RunDir]") -> None:
    """UsageError for a file in a run directory or in another folder of vmcjob."""
    from vmcjob.rundir import RunDir

    roots = {run.path.resolve().parent for run in chosen}
    for folder in path.resolve().parents:
        is_hidden = folder.parent in roots and folder.name.startswith(".")
        if is_hidden or RunDir(folder).exists:
            raise UsageError(f"{path}: {folder.name} belongs to runs; write it elsewhere")


def _is_table(path: Path) -> bool:
    """Whether a file is empty or a table of vmcjob, which may be replaced."""
    header = BINARY.get(_ending(path), HEADER)
    with open(path, "rb") as file:
        begin = file.read(len(header))
    return begin in (b"", header)


def _ending(path: Path) -> str:
    return path.suffix.lower()


def _is_device(path: Path) -> bool:
    """Whether the path is a device that takes output directly: a terminal, a pipe."""
    return path.exists() and not path.is_file()
