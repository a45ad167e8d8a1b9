"""Waiting for a worker's end, while signals and the clock may give a reason to stop it."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from vmcjob.protocol import ENDS_JOB, STOP
from vmcjob.protocol.batch import BatchContext, say
from vmcjob.rundir import RunDir

POLL_S = 0.2  # how soon an ended worker is noticed
MAX_PATIENCE_S = 15.0  # for an answer of SLURM, while signals wait
ASK_AGAIN_S = 60.0
TELL_AGAIN_S = 5.0
LOOK_S = 5.0  # between two looks for a cancellation, at files that many nodes share


class Inbox:
    """The first reason to stop that came."""

    def __init__(self) -> None:
        self.first: str | None = None

    def put(self, reason: str) -> None:
        """Note a reason; those that follow change nothing."""
        self.first = self.first or reason


class Limit(Protocol):
    """A reason to stop that comes with time."""

    def has_come(self) -> bool:
        """Whether it is time; asked again and again."""
        ...


class Deadline:
    """When a worker has to be asked to stop: some time before the end of the wall time."""

    def __init__(self, job: BatchContext, spare_s: float) -> None:
        self._job, self._spare_s = job, spare_s
        self._patience_s = min(spare_s / 3, MAX_PATIENCE_S)
        self._end = job.end_time(self._patience_s)
        self._asked_at = time.monotonic()

    def has_come(self) -> bool:
        """Whether it is time; SLURM is asked again then, for a wall time can be made longer.

        As long as it has not said when the wall time ends, it is asked every now and then.
        """
        if self._end is None:
            if time.monotonic() - self._asked_at >= ASK_AGAIN_S:
                self._ask()
            return False
        if time.time() < self._end - self._spare_s:
            return False
        self._ask()
        return time.time() >= self._end - self._spare_s

    def _ask(self) -> None:
        """What SLURM says now, else what it said before."""
        said = self._job.end_time(self._patience_s)
        self._end = self._end if said is None else said
        self._asked_at = time.monotonic()


class Recall:
    """Whether the run was cancelled: scancel may not reach this node, or spare a shared job."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._next_look = 0.0

    def has_come(self) -> bool:
        """Whether the run was cancelled, as far as the last look at its record tells."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + LOOK_S
        submission = self._run.read_submission()
        return submission is not None and submission.cancelled_at is not None


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

    previous = {number: signal.signal(number, note) for number in ENDS_JOB}
    for number in (signal.SIGCONT, STOP):
        previous[number] = signal.signal(number, ignore)
    try:
        yield inbox
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def watch(
    worker: subprocess.Popen[bytes],
    inbox: Inbox,
    limits: Mapping[str, Limit],
    note: Callable[[str], None],
) -> None:
    """Wait for the worker's end; note the first reason to stop and pass it on.

    Limits are asked as long as there is none. The worker is told until it ends: while Apptainer
    starts an image, there is a moment in which it loses signals.
    """
    told_at: float | None = None
    while worker.poll() is None:
        for reason, limit in limits.items():
            if not inbox.first and limit.has_come():
                inbox.put(reason)
        if inbox.first and told_at is None:
            say(f"{inbox.first}: asking the worker to stop at its next checkpoint")
            note(inbox.first)
        if inbox.first and (told_at is None or time.monotonic() - told_at >= TELL_AGAIN_S):
            worker.send_signal(STOP)
            told_at = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            worker.wait(POLL_S)
    if worker.stdin is not None:
        worker.stdin.close()
