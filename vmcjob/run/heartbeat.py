"""Heartbeats that continue while the worker is busy: a thread repeats them."""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from vmcjob.errors import RunDirError
from vmcjob.rundir import Heartbeat, RunDir

BEAT_S = 2.0
JOB_BEAT_S = 10.0
"""Seconds between heartbeats in jobs of a batch system, whose file server many runs share."""
PART = 0.2
"""The pause is at most this part of the time since the phase began: short runs are seen, too."""


class HeartbeatWriter:
    """Writes heartbeats, and repeats each with the current time until the next one.

    A context manager: on exit, the thread has ended and the last heartbeat remains.

    Args:
        run_dir: the run.
        pause_s: smallest number of seconds between two heartbeats of a long phase.
    """

    def __init__(self, run_dir: RunDir, pause_s: float = 0.0) -> None:
        self._run_dir, self._pause_s = run_dir, pause_s
        self._repeat_s = max(pause_s, BEAT_S)
        self._last: Heartbeat | None = None
        self._written: Heartbeat | None = None
        self._began = 0.0  # the phase of the last heartbeat, in seconds since the epoch
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
        with suppress(RunDirError):
            self._write()

    def beat(self, heartbeat: Heartbeat) -> None:
        """Take over a heartbeat, and write it if it is due; RunDirError if the run is gone."""
        with self._is_writing:
            self._last, before = heartbeat, self._written
            if before is None or heartbeat.phase is not before.phase:
                self._began = heartbeat.time
                self._write()
                return
            pause_s = min(self._pause_s, PART * (heartbeat.time - self._began))
            if not 0.0 <= heartbeat.time - before.time < pause_s:  # also if the clock went back
                self._write()

    def end_with(self, heartbeat: Heartbeat) -> None:
        """Write a last heartbeat with its own time; it is not repeated."""
        self._has_ended.set()
        with self._is_writing:
            self._last = heartbeat
            self._write()

    def _write(self) -> None:
        """Write the last heartbeat, unless that was done."""
        if self._last is not None and self._last is not self._written:
            self._run_dir.require_presence()
            self._run_dir.write_heartbeat(self._last)
            self._written = self._last

    def _repeat(self) -> None:
        while not self._has_ended.wait(BEAT_S / 2):
            with self._is_writing, suppress(RunDirError):  # the worker will meet the full disk too
                now = time.time()
                if self._has_ended.is_set():
                    return
                if self._written and not 0.0 <= now - self._written.time < self._repeat_s:
                    self._last = replace(self._last or self._written, time=now)
                    self._write()


class NoHeartbeat(HeartbeatWriter):
    """The heartbeat of ranks other than 0: none, because a run has one heartbeat."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Write nothing."""
