"""The small files of one run: its record, submission, progress and outcome."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vmcjob.errors import NotFoundError, RunDirError
from vmcjob.rundir.files import (
    MAX_BYTES,
    append_line,
    open_file,
    read_text,
    remove_file,
    replace_file,
)
from vmcjob.rundir.log import LogReader
from vmcjob.rundir.process import Process, host_name
from vmcjob.rundir.records import (
    END,
    Cancellation,
    Heartbeat,
    Notification,
    Origins,
    Outcome,
    OutcomeRecord,
    Record,
    Sequel,
    Submission,
    Waits,
    decode,
    encode,
    parse_object,
)
from vmcjob.rundir.results import RunResults

T = TypeVar("T")
RECORD_LOST = (
    "was a run, but its run.json, which identifies it, is lost; restore that file, or move "
    "the directory away and submit again"
)
RESERVE_BYTES = 2**13  # space for an outcome and a line of history, each in its own disk block


@dataclass(frozen=True)
class RunJournal(RunResults):
    """The small files of a run that are read and written while it lives.

    Every JSON file is replaced atomically, so that a reader sees the old or the new version.
    Advisory files (heartbeat, submission, outcome) read as None if missing or damaged. A run
    without a readable record is an error, because only the record identifies the run.
    """

    def read_record(self) -> Record:
        """The record of the run; RunDirError if it cannot be read."""
        try:
            return decode(Record, read_text(self.record_path))
        except FileNotFoundError:
            raise RunDirError(f"{self.path}: {RECORD_LOST}") from None
        except OSError as error:
            raise RunDirError(f"{self.record_path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            reason = "not a text"
        except ValueError as error:
            reason = str(error)
        advice = "only this file identifies the run: restore it, or move the directory away"
        raise RunDirError(f"{self.record_path}: damaged: {reason}; {advice}")

    def read_spec_text(self) -> str:
        """The resolved spec as text."""
        try:
            return read_text(self.spec_path)
        except OSError as error:
            reason = error.strerror
        except UnicodeDecodeError:
            reason = "it is not a text"
        raise RunDirError(f"{self.spec_path}: cannot be read: {reason}")

    def write_spec_text(self, text: str) -> None:
        """Replace the spec: other resources, same science."""
        replace_file(self.spec_path, text)

    def read_origins(self) -> dict[str, str] | None:
        """The origins of the values of the spec; None for runs of earlier releases."""
        found = _read(Origins, self.origins_path)
        return None if found is None else {key: str(words) for key, words in found.origins.items()}

    def write_origins(self, origins: Mapping[str, str]) -> None:
        """Record the origins of the values of the spec."""
        replace_file(self.origins_path, encode(Origins(origins=origins)))

    def read_submission(self) -> Submission | None:
        """The last submission; None if the run is not submitted."""
        return _read(Submission, self.submission_path)

    def write_submission(self, submission: Submission) -> None:
        """Record a submission."""
        replace_file(self.submission_path, encode(submission))

    def clear_submission(self) -> None:
        """Remove the submission."""
        remove_file(self.submission_path)

    def write_environment(self, text: str, rank: int = 0) -> None:
        """Record the environment of the worker's container."""
        replace_file(self.environment_path_of(rank), text)

    def read_environment(self) -> str | None:
        """The environment of the last worker in a container; None without a container."""
        try:
            return read_text(self.environment_path)
        except (OSError, UnicodeDecodeError):
            return None

    def read_heartbeat(self) -> Heartbeat | None:
        """The worker's last heartbeat."""
        return _read(Heartbeat, self.heartbeat_path)

    def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Write a heartbeat."""
        replace_file(self.heartbeat_path, encode(heartbeat))

    def read_cancellation(self) -> Cancellation | None:
        """The cancellation of the run; None if it is not cancelled."""
        return _read(Cancellation, self.cancellation_path)

    def write_cancellation(self, worker: Process | None) -> None:
        """Record that the run is cancelled and which worker was asked to stop (None: no worker)."""
        cancellation = Cancellation()
        if worker is not None:
            asked = {"host": worker.host, "pid": worker.pid, "process_start": worker.start}
            cancellation = Cancellation(**asked)
        replace_file(self.cancellation_path, encode(cancellation))

    def clear_cancellation(self) -> None:
        """Remove the cancellation."""
        remove_file(self.cancellation_path)

    def read_waits(self) -> Waits | None:
        """The runs that it comes after; None if its user named none."""
        return _read(Waits, self.waits_path)

    def write_waits(self, after: Iterable[str]) -> None:
        """Note the ids of the runs that it comes after."""
        if wanted := dict.fromkeys(after, END):
            replace_file(self.waits_path, encode(Waits(after=wanted)))
        else:
            remove_file(self.waits_path)

    def read_notification(self) -> Notification | None:
        """The last end of the run that was reported to the user's command."""
        return _read(Notification, self.notification_path)

    def write_notification(self, notification: Notification) -> None:
        """Record that an end was reported to the user's command."""
        replace_file(self.notification_path, encode(notification))

    def read_sequel(self) -> Sequel | None:
        """The sequel that was begun and not completed; None without one."""
        return _read(Sequel, self.sequel_path)

    def write_sequel(self, sequel: Sequel) -> None:
        """Record that the sequel begins, or why it has failed."""
        replace_file(self.sequel_path, encode(sequel))

    def clear_sequel(self) -> None:
        """Remove the record of the sequel: the next run is submitted, or there is none."""
        remove_file(self.sequel_path)

    def read_outcome(self) -> OutcomeRecord | None:
        """The outcome of the last attempt; None while an attempt runs, or if it wrote none."""
        return _read(OutcomeRecord, self.outcome_path)

    def read_end(self, submission: Submission) -> Outcome | None:
        """The final outcome of a submission; None as long as work is left."""
        outcome = self.read_outcome()
        if outcome is None or outcome.outcome is Outcome.PREEMPTED:
            return None
        return outcome.outcome if submission.has_come_to(outcome) else None

    def reserve(self) -> None:
        """Reserve disk space for the outcome; RunDirError if the disk is full."""
        replace_file(self.reserve_path, os.urandom(RESERVE_BYTES // 2).hex())

    def release(self) -> None:
        """Free the reserved disk space."""
        remove_file(self.reserve_path)

    def write_outcome(self, outcome: OutcomeRecord) -> None:
        """Record how the attempt ended, and free the reserved space.

        If the disk is full, the reserved space is freed first, and the outcome is written again.
        """
        try:
            replace_file(self.outcome_path, encode(outcome))
        except RunDirError:
            self.release()
            remove_file(self.outcome_path)  # the outcome of the previous attempt no longer counts
            replace_file(self.outcome_path, encode(outcome))
        self.release()

    def clear_outcome(self) -> None:
        """Remove the outcome of the last attempt, because a new one begins."""
        remove_file(self.outcome_path)

    def append_attempt(self, event: str, **details: object) -> None:
        """Add a line to the history: event ("start" or "end"), time, host, pid and details."""
        line = {"event": event, "time": time.time(), "host": host_name(), "pid": os.getpid()}
        append_line(self.attempts_path, json.dumps(line | details, default=str) + "\n")

    def read_attempts(self) -> list[dict[str, object]]:
        """The history, oldest first, without lines that a crash cut short."""
        try:
            with open_file(self.attempts_path) as file:
                file.seek(-min(MAX_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
                lines = file.read(MAX_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [event for event in map(parse_object, lines) if event is not None]

    def read_log(self, rank: int = 0, reader: LogReader | None = None) -> Iterator[bytes]:
        """The workers' output as bytes, because a crash may print anything.

        With a `reader` of this log, only output that the reader has not returned yet.
        """
        try:
            yield from (reader or LogReader(self.log_of(rank))).read()
        except FileNotFoundError:
            who = f"rank {rank} of {self.path.name}" if rank else self.path.name
            raise NotFoundError(f"{who} has not said anything yet, or it was pruned") from None
        except OSError as error:
            path = self.log_path_of(rank)
            raise RunDirError(f"{path}: cannot be read: {error.strerror}") from None


def _read(kind: type[T], path: Path) -> T | None:
    """The record in a file; None if it is missing or damaged."""
    try:
        return decode(kind, read_text(path))
    except (OSError, ValueError):
        return None
