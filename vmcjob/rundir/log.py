"""A log that cannot grow for ever: the file that is written, and the one that came before it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vmcjob.rundir.files import open_file

MAX_BYTES = 16 * 1024**2
"""From this size on a log becomes the previous one, whose place it takes."""
STREAMS = (1, 2)  # what a worker says, in Python or below
HEAD = 64  # bytes, by which a file is known: lines of a log begin with their time
Identity = tuple[int, int]


@dataclass(frozen=True)
class LogFiles:
    """Where a log is: the file that grows, and its only predecessor."""

    current: Path
    previous: Path

    def turn_over(self, limit: int = MAX_BYTES) -> bool:
        """Begin a new file if what this process says goes to one that has become too large.

        Who writes turns over: no line is lost, and none cut in two. False if there is no need.
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
        """The files that there are, the older one first, as they were at one moment."""
        while True:
            # Were the older one opened first, a turn in between would hide the younger from us.
            found = [file for path in (self.current, self.previous) if (file := _open(path, stack))]
            identities = [_identity(os.fstat(file.fileno())) for file in found]
            if len(set(identities)) == len(identities):
                return found[::-1]

    def _is_ours(self, stream: int) -> bool:
        """Whether what goes to a stream goes to the current file."""
        try:
            return os.path.samestat(os.fstat(stream), os.stat(self.current))
        except OSError:
            return False


class LogReader:
    """Reads a log from its beginning, and on from where it was, across turns."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._last: Identity | None = None  # the file that was read last
        self._head = b""  # how it begins: a new file may get the identity of a removed one
        self._position = 0  # up to where it was read

    def read(self) -> Iterator[bytes]:
        """What has come since it was asked before; FileNotFoundError while there is no file."""
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
        """What has come to the file that was read last, or all of another."""
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
    """Of the file that a stream goes to; 0 where it is closed."""
    with suppress(OSError):
        return os.fstat(stream).st_size
    return 0
