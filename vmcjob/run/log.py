"""A limit for the size of a worker's log, enforced by the worker itself."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vmcjob.rundir import LogFiles

LOOK_S = 1.0


@contextmanager
def bounded(log: LogFiles) -> Iterator[None]:
    """While inside, a thread begins a new log file when the current one is too large."""
    has_ended = threading.Event()

    def look() -> None:
        while not has_ended.wait(LOOK_S):
            with suppress(OSError):  # on a full disk, the log stays as it is
                log.turn_over()

    thread = threading.Thread(target=look, name="log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
