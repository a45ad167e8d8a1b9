"""Locks of a runs root, so that submitting, starting and cancelling do not interfere."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmcjob.errors import RunDirError, SchedulerError

MIN_PAUSE_S, MAX_PAUSE_S = 0.02, 0.5
"""Pauses between two tries: each is a question to the file server."""


@contextmanager
def queue_lock(root: Path, patience_s: float = 30.0) -> Iterator[None]:
    """Hold the lock for all decisions about runs below a runs root."""
    deadline, pause_s = time.monotonic() + patience_s, MIN_PAUSE_S
    descriptor = open_lock(lock_folder(root) / "queue.lock")
    try:
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise SchedulerError(
                    f"{root}: another vmcjob has been at work here for {patience_s:g} s; "
                    "is one stopped or hanging?"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def lock_folder(root: Path) -> Path:
    """The folder of a runs root's locks, and of the log of this machine's launchers."""
    path = root / ".local"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be made: {error.strerror}") from None
    return path


def open_lock(path: Path) -> int:
    """Open a lock file."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be opened: {error.strerror}") from None


def try_lock(descriptor: int) -> bool:
    """Whether this process has locked the file; the kernel releases it at the holder's end."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise RunDirError(f"this file system does not lock files: {error.strerror}") from None
    return True
