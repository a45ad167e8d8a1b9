"""A lock that only one process can hold, and that the kernel releases when the process ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from vmcjob.errors import RunDirError
from vmcjob.rundir.process import host_name


@contextmanager
def lock(path: Path, refusal: str, patience_s: float = 0.0) -> Iterator[None]:
    """Hold a lock file with this process's name in it; RunDirError names another holder.

    With `patience_s`, the lock of another holder is waited for, so long at most.

    The kernel releases the lock when the process ends, in whatever way. The file stays: if it were
    removed, two processes could lock two different files of the same name.
    """
    try:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 -- closed below
    except OSError as error:
        raise RunDirError(f"{path}: cannot be opened: {error.strerror}") from None
    with file:
        try:
            _take(file, patience_s)
        except BlockingIOError:
            # the holder may have locked the file just now and not yet written its name
            time.sleep(0.1)
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise RunDirError(f"{refusal} by {owner}") from None
        except OSError as error:
            raise RunDirError(f"{path}: cannot be locked: {error.strerror}") from None
        file.truncate(0)
        with suppress(OSError):  # a full disk: the lock holds without a name too
            os.write(file.fileno(), f"pid {os.getpid()} on host {host_name()}\n".encode())
        yield


def _take(file: IO[str], patience_s: float) -> None:
    """Lock a file; BlockingIOError if another process still has the lock after `patience_s`."""
    end = time.monotonic() + patience_s
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
        time.sleep(min(1.0, patience_s))
