"""Heartbeats that continue while the worker is busy: a thread repeats them."""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from vmcjob.errors import RunDirError
from vmcjob.rundir import Heartbeat, RunDir

BEAT_S = 2.0


class HeartbeatWriter:
    """Writes heartbeats, and repeats each with the current time until the next one.

    A context manager: on exit, the thread has ended and the last heartbeat remains.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._last: Heartbeat | None = None
        self._is_writing = threading.Lock()
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="heartbeat", daemon=True)

    def __enter__(self) -> "HeartbeatWriter":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_ended.set()
        self._thread.join()

    def beat(self, heartbeat: Heartbeat) -> None:
        """Write a new heartbeat; RunDirError if the run directory is gone."""
        with self._is_writing:
            self._last = heartbeat
            self._run_dir.require_presence()
            self._run_dir.write_heartbeat(heartbeat)

    def end_with(self, heartbeat: Heartbeat) -> None:
        """Write a last heartbeat with its own time; it is not repeated."""
        self._has_ended.set()
        self.beat(heartbeat)

    def _repeat(self) -> None:
        while not self._has_ended.wait(BEAT_S / 2):
            with self._is_writing, suppress(RunDirError):  # the worker will meet the full disk too
                now = time.time()
                if self._has_ended.is_set():
                    return
                if self._last is not None and now - self._last.time >= BEAT_S:
                    self._last = replace(self._last, time=now)
                    self._run_dir.require_presence()
                    self._run_dir.write_heartbeat(self._last)


class NoHeartbeat(HeartbeatWriter):
    """The heartbeat of ranks other than 0: none, because a run has one heartbeat."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Write nothing."""
