"""A log of limited size: the current file and its predecessor."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vmcjob.rundir.files import open_file

MAX_BYTES = 16 * 1024**2
"""Size from which on the current log replaces its predecessor, and a new file begins."""
STREAMS = (1, 2)  # output of a worker, from Python or from libraries
HEAD = 64  # bytes that identify a file: lines of a log begin with their time
Identity = tuple[int, int]


@dataclass(frozen=True)
class LogFiles:
    """The files of a log: the current one and its only predecessor."""

    current: Path
    previous: Path

    def turn_over(self, limit: int = MAX_BYTES) -> bool:
        """Begin a new file if this process writes to one that is too large; False if not needed.

        The writing process does this itself, so no line is lost or cut in two.
        """
        ours = [stream for stream in STREAMS if _size(stream) > limit and self._is_ours(stream)]
        if not ours:
            return False
        os.replace(self.current, self.previous)
        fresh = os.open(self.current, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for stream in ours:
            os.dup2(fresh, stream)
        os.close(fresh)
        return True

    def open_both(self, stack: ExitStack) -> list[BinaryIO]:
        """The existing files, older first, as they were at one moment."""
        while True:
            # If the older file were opened first, a turn-over in between would hide the newer one.
            found = [file for path in (self.current, self.previous) if (file := _open(path, stack))]
            identities = [_identity(os.fstat(file.fileno())) for file in found]
            if len(set(identities)) == len(identities):
                return found[::-1]

    def _is_ours(self, stream: int) -> bool:
        """Whether a stream writes to the current file."""
        try:
            return os.path.samestat(os.fstat(stream), os.stat(self.current))
        except OSError:
            return False


class LogReader:
    """Reads a log from its beginning, and later continues where it stopped, across turn-overs."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._last: Identity | None = None  # identity of the file that was read last
        self._head = b""  # its first bytes: a new file may get the identity of a removed one
        self._position = 0  # number of bytes read from it

    def read(self) -> Iterator[bytes]:
        """Output since the last call; FileNotFoundError while there is no file."""
        with ExitStack() as stack:
            files = self._files.open_both(stack)
            if not files:
                raise FileNotFoundError(self._files.current)
            are_known = [self._is_last(file) for file in files]
            for file in files[are_known.index(True) if any(are_known) else 0 :]:
                yield from self._read_on(file)

    def _is_last(self, file: BinaryIO) -> bool:
        """Whether a file is the one that was read last."""
        is_named_so = _identity(os.fstat(file.fileno())) == self._last
        return is_named_so and file.read(len(self._head)) == self._head

    def _read_on(self, file: BinaryIO) -> Iterator[bytes]:
        """The new bytes of the file that was read last, or all bytes of another file."""
        file.seek(0)
        if not self._is_last(file):
            self._last, self._head, self._position = _identity(os.fstat(file.fileno())), b"", 0
        file.seek(self._position)
        for piece in iter(lambda: file.read(1 << 16), b""):
            if self._position == len(self._head):
                self._head = (self._head + piece)[:HEAD]
            self._position += len(piece)
            yield piece


def _open(path: Path, stack: ExitStack) -> BinaryIO | None:
    with suppress(FileNotFoundError):
        return stack.enter_context(open_file(path))
    return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _size(stream: int) -> int:
    """Size of the file that a stream writes to; 0 if the stream is closed."""
    with suppress(OSError):
        return os.fstat(stream).st_size
    return 0
