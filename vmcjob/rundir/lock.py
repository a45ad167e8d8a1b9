"""A lock that only one process can hold, and that the kernel releases when the process ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vmcjob.errors import RunDirError
from vmcjob.rundir.process import host_name


@contextmanager
def lock(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file with this process's name in it; RunDirError names another holder.

    The kernel releases the lock when the process ends, in whatever way. The file stays: if it were
    removed, two processes could lock two different files of the same name.
    """
    try:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 -- closed below
    except OSError as error:
        raise RunDirError(f"{path}: cannot be opened: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
