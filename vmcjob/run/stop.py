"""How a worker is asked to stop: a signal sets a flag, which the loop reads between blocks."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from vmcjob.protocol import ENDS_WORKER, ORPHANED, SUPERVISED

STANDARD_INPUT = 0
PIECE = 4096  # bytes; nothing is ever said, and only the end counts


class StopRequest:
    """Whether a stop was asked for, and by which signal; 0 for none."""

    def __init__(self) -> None:
        self.number = 0

    def set(self, number: int) -> None:
        """Ask the worker to commit and stop."""
        self.number = number


class StoppedError(Exception):
    """The run was asked to stop, has committed, and can be taken up again."""


def describe(number: int) -> str:
    """What a signal that asks for an end has done."""
    if number == ORPHANED:
        return "stopped, for its supervisor had been killed"
    return f"stopped by {signal.Signals(number).name}"


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """While inside, signals that ask for an end only set a flag: a handler can do nothing else.

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
    """Stop when standard input ends: nobody is left who could end us, and the allocation is gone.

    A kill of the supervisor is noticed through a container too, which the kernel's own signal for
    orphans does not pass.
    """
    try:
        while os.read(STANDARD_INPUT, PIECE):
            pass
    except OSError:  # there never was one
        return
    stop.set(ORPHANED)
