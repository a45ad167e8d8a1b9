"""Stopping a worker: a signal sets a flag, which the loop reads between blocks."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from vmcjob.protocol import ENDS_WORKER, ORPHANED, SUPERVISED

STANDARD_INPUT = 0
PIECE = 4096  # bytes; nothing is ever sent, and only the end counts


class StopRequest:
    """Whether a stop was requested, and by which signal; 0 for none."""

    def __init__(self) -> None:
        self.number = 0

    def set(self, number: int) -> None:
        """Ask the worker to commit and stop."""
        self.number = number


class StoppedError(Exception):
    """The run was asked to stop, has committed, and can be continued."""


def describe(number: int) -> str:
    """The effect of a signal that asks for an end, in words."""
    if number == ORPHANED:
        return "stopped, for its supervisor had been killed"
    return f"stopped by {signal.Signals(number).name}"


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """While inside, signals that ask for an end only set a flag, because a handler can do no more.

    It runs between any two bytecodes, when buffers may be donated and files half written.
    """
    stop = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        stop.set(number)

    previous = {number: signal.signal(number, handle) for number in ENDS_WORKER}
    if SUPERVISED in os.environ:
        threading.Thread(target=_outlive_nobody, args=(stop,), name="outlive", daemon=True).start()
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _outlive_nobody(stop: StopRequest) -> None:
    """Stop when standard input ends: then the supervisor is gone, and so is the allocation.

    This also works through a container, which does not pass on the kernel's signal for orphans.
    """
    try:
        while os.read(STANDARD_INPUT, PIECE):
            pass
    except OSError:  # there never was one
        return
    stop.set(ORPHANED)
