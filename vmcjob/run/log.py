"""A worker's own log is kept from growing for ever, by the worker."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vmcjob.rundir import LogFiles

LOOK_S = 1.0


@contextmanager
def bounded(log: LogFiles) -> Iterator[None]:
    """While inside, a thread begins a new file whenever the log has become too large."""
    has_ended = threading.Event()

    def look() -> None:
        while not has_ended.wait(LOOK_S):
            with suppress(OSError):  # a full disk: it goes on as it is
                log.turn_over()

    thread = threading.Thread(target=look, name="log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
