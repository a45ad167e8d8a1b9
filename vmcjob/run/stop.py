"""How a worker is asked to stop: a signal sets a flag, which the loop reads between blocks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


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

    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
