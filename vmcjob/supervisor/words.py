"""The last line that a worker, or Apptainer in its place, wrote before it ended."""

import os
from contextlib import suppress
from pathlib import Path

from vmcjob.apptainer.trial import last_line

MAX_BYTES = 4096  # from the end of a log; a line of Apptainer has a tenth of that
MAX_LETTERS = 300


def size_of(log: Path) -> int:
    """Size of a log in bytes; 0 without a log."""
    with suppress(OSError):
        return log.stat().st_size
    return 0


def last_words(log: Path, begin: int) -> str:
    """The last line of a log that begins after so many bytes; empty without one.

    A log that is shorter has turned over since, and all of it counts.
    """
    text = b""
    with suppress(OSError), open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begin if begin <= size else 0, size - MAX_BYTES))
        text = file.read()
    return last_line(text.decode("utf-8", "replace"))[:MAX_LETTERS]
