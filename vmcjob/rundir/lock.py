"""A lock that only one process of all can hold, and that its death sets free."""

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
    """Hold a file locked, one's name in it; RunDirError with a refusal and the other one's name.

    The kernel drops the lock when the process ends, however it ends. The file stays: removing it
    would let two processes lock two different files of the same name.
    """
    try:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 -- closed below
    except OSError as error:
        raise RunDirError(f"{path}: cannot be opened: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)  # it may have got the lock just now, and not yet left its name
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise RunDirError(f"{refusal} by {owner}") from None
        except OSError as error:
            raise RunDirError(f"{path}: cannot be locked: {error.strerror}") from None
        file.truncate(0)
        with suppress(OSError):  # a full disk: the lock holds without a name too
            os.write(file.fileno(), f"pid {os.getpid()} on host {host_name()}\n".encode())
        yield
