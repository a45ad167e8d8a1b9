"""The last line that a worker, or Apptainer in its place, wrote before it ended."""

import os
import re
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 4096  # from the end of a log; a line of Apptainer has a tenth of that
MAX_LETTERS = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def size_of(log: Path) -> int:
    """Size of a log in bytes; 0 if there is none."""
    with suppress(OSError):
        return log.stat().st_size
    return 0


def last_line(log: Path, begin: int) -> str:
    """The last line of a log that begins after so many bytes; empty without one.

    A log that is shorter has turned over since, and all of it counts.
    """
    text = b""
    with suppress(OSError), open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begin if begin <= size else 0, size - MAX_BYTES))
        text = file.read()
    plain = _COLOURS.sub("", text.decode("utf-8", "replace"))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return lines[-1][:MAX_LETTERS] if lines else ""
