"""Waiting for a worker's end, while signals and the clock may give a reason to stop it."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from vmcjob.supervisor.job import say

STOP_SIGNAL = signal.SIGUSR2
POLL_S = 0.2  # how soon an ended worker is noticed
WARNING = signal.SIGURG  # before a preemption: the one signal that harms no process by itself


class Inbox:
    """The first reason to stop that came."""

    def __init__(self) -> None:
        self.first: str | None = None

    def put(self, reason: str) -> None:
        """Note a reason; those that follow change nothing."""
        self.first = self.first or reason


@contextmanager
def listen() -> Iterator[Inbox]:
    """While inside, the batch system's signals are noted and do nothing else.

    They replace submitit's handlers, which would pickle us anew and requeue on their own account.
    """
    inbox = Inbox()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        inbox.put(signal.Signals(number).name)

    def ignore(number: int, frame: FrameType | None) -> None:
        del number, frame  # unlike SIG_IGN, a handler is not inherited by the worker

    numbers = (WARNING, signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, note) for number in numbers}
    for number in (signal.SIGCONT, STOP_SIGNAL):
        previous[number] = signal.signal(number, ignore)
    try:
        yield inbox
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def watch(
    worker: subprocess.Popen[bytes],
    inbox: Inbox,
    deadline: float | None,
    note: Callable[[str], None],
) -> None:
    """Wait for the worker's end; note the first reason to stop and pass it on, once."""
    is_told = False
    while worker.poll() is None:
        if deadline is not None and time.time() >= deadline:
            inbox.put("deadline")
        if inbox.first and not is_told:
            say(f"{inbox.first}: asking the worker to stop at its next checkpoint")
            note(inbox.first)
            worker.send_signal(STOP_SIGNAL)
            is_told = True
        with suppress(subprocess.TimeoutExpired):
            worker.wait(POLL_S)
