"""Output files that users ask for, written completely or not at all."""

from pathlib import Path

from vmcjob.cli.screen import say
from vmcjob.errors import UsageError


def write_output(path: Path, content: str | bytes) -> None:
    """Replace a file, or the target of a link, and say so; UsageError if this is impossible."""
    from vmcjob.rundir.files import write_whole

    try:
        write_whole(path.resolve(), content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"wrote {path}", "dim")


def require_folder(path: Path) -> None:
    """UsageError, before any work, if the folder of a file is not there."""
    if not path.resolve().parent.is_dir():
        raise UsageError(f"{path}: cannot be written: there is no folder {path.parent}")
