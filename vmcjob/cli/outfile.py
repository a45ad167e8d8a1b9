"""Files that users ask for: written whole or not at all, and what keeps them from it is said."""

from pathlib import Path

from vmcjob.cli.screen import say
from vmcjob.errors import UsageError


def write_output(path: Path, content: str | bytes) -> None:
    """Replace a file, or what a link leads to, and say so; UsageError where that cannot be."""
    from vmcjob.rundir.files import write_whole

    try:
        write_whole(path.resolve(), content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"wrote {path}", "dim")
