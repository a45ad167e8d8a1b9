"""Taking turns below a runs root: submitting, starting and cancelling look first and act then."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmcjob.errors import RunDirError, SchedulerError


@contextmanager
def queue_lock(root: Path, patience_s: float = 30.0) -> Iterator[None]:
    """Be alone in deciding who runs what below a runs root."""
    deadline = time.monotonic() + patience_s
    descriptor = open_lock(lock_folder(root) / "queue.lock")
    try:
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise SchedulerError(
                    f"{root}: another vmcjob has been at work here for {patience_s:g} s; "
                    "is one stopped or hanging?"
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def lock_folder(root: Path) -> Path:
    """Where a runs root keeps its locks, and the launchers of this machine their log."""
    path = root / ".local"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be made: {error.strerror}") from None
    return path


def open_lock(path: Path) -> int:
    """A file to be locked."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be opened: {error.strerror}") from None


def try_lock(descriptor: int) -> bool:
    """Whether the file is ours now; the kernel frees it when its last holder ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise RunDirError(f"this file system does not lock files: {error.strerror}") from None
    return True
