"""The small files of one run: what it is, who was asked to run it, how it goes, how it ended."""

import json
import os
import time
from collections.abc import Iterable, Iterator
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
    Outcome,
    OutcomeRecord,
    Record,
    Submission,
    Waits,
    decode,
    encode,
    parse_object,
)
from vmcjob.rundir.results import RunResults

T = TypeVar("T")
RECORD_LOST = (
    "was a run, and its run.json is lost, which alone says what it is; restore that file, or move "
    "the directory away and submit again"
)
RESERVE_BYTES = 2**13  # an outcome and a line of history, each in a block of its own


@dataclass(frozen=True)
class RunJournal(RunResults):
    """What is read and written of a run while it lives.

    Every JSON file is replaced as a whole, so that a reader sees the old or the new one. What is
    advisory (heartbeat, submission, outcome) reads as None when it is missing or damaged; a run
    without a readable record is an error, for nothing else says what it is.
    """

    def read_record(self) -> Record:
        """What the run is; RunDirError when that cannot be read."""
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
        advice = "nothing else says what this run is: restore the file, or move the directory away"
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
        """Replace the spec: other resources for the same science."""
        replace_file(self.spec_path, text)

    def read_submission(self) -> Submission | None:
        """Who was asked to run it, None when nobody was."""
        return _read(Submission, self.submission_path)

    def write_submission(self, submission: Submission) -> None:
        """Say who was asked to run it."""
        replace_file(self.submission_path, encode(submission))

    def clear_submission(self) -> None:
        """Nobody is asked any more."""
        remove_file(self.submission_path)

    def write_environment(self, text: str, rank: int = 0) -> None:
        """Say what the environment of the worker's container is."""
        replace_file(self.environment_path_of(rank), text)

    def read_environment(self) -> str | None:
        """What the last worker in a container saw of the environment, None without a container."""
        try:
            return read_text(self.environment_path)
        except (OSError, UnicodeDecodeError):
            return None

    def read_heartbeat(self) -> Heartbeat | None:
        """The last sign of life of a worker."""
        return _read(Heartbeat, self.heartbeat_path)

    def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Give a sign of life."""
        replace_file(self.heartbeat_path, encode(heartbeat))

    def read_cancellation(self) -> Cancellation | None:
        """That a user has it stopped, None when it is wanted."""
        return _read(Cancellation, self.cancellation_path)

    def write_cancellation(self, worker: Process | None) -> None:
        """It is not wanted for now; who is asked to stop, None where nobody is at work."""
        cancellation = Cancellation()
        if worker is not None:
            asked = {"host": worker.host, "pid": worker.pid, "process_start": worker.start}
            cancellation = Cancellation(**asked)
        replace_file(self.cancellation_path, encode(cancellation))

    def clear_cancellation(self) -> None:
        """It is wanted again."""
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
        """Of which end somebody has been told last."""
        return _read(Notification, self.notification_path)

    def write_notification(self, notification: Notification) -> None:
        """Somebody is told of an end."""
        replace_file(self.notification_path, encode(notification))

    def read_outcome(self) -> OutcomeRecord | None:
        """How the last attempt ended, None while one runs or when it could not say."""
        return _read(OutcomeRecord, self.outcome_path)

    def read_end(self, submission: Submission) -> Outcome | None:
        """What a submission has come to for good: None as long as something is left to do."""
        outcome = self.read_outcome()
        if outcome is None or outcome.outcome is Outcome.PREEMPTED:
            return None
        return outcome.outcome if submission.has_come_to(outcome) else None

    def reserve(self) -> None:
        """Keep some space for the outcome; RunDirError when there is none left."""
        replace_file(self.reserve_path, os.urandom(RESERVE_BYTES // 2).hex())

    def release(self) -> None:
        """Give the kept space back."""
        remove_file(self.reserve_path)

    def write_outcome(self, outcome: OutcomeRecord) -> None:
        """Say how the attempt ended; on a full disk, in the space that was kept for it."""
        try:
            replace_file(self.outcome_path, encode(outcome))
        except RunDirError:
            self.release()
            remove_file(self.outcome_path)  # of the attempt before: it no longer counts
            replace_file(self.outcome_path, encode(outcome))
        self.release()

    def clear_outcome(self) -> None:
        """A new attempt begins: the last one's end no longer counts."""
        remove_file(self.outcome_path)

    def append_attempt(self, event: str, **details: object) -> None:
        """Add one line to the history: an event ("start", "end"), who, when, and details."""
        line = {"event": event, "time": time.time(), "host": host_name(), "pid": os.getpid()}
        append_line(self.attempts_path, json.dumps(line | details, default=str) + "\n")

    def read_attempts(self) -> list[dict[str, object]]:
        """The history, oldest first; a line cut short by a crash is left out."""
        try:
            with open_file(self.attempts_path) as file:
                file.seek(-min(MAX_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
                lines = file.read(MAX_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [event for event in map(parse_object, lines) if event is not None]

    def read_log(self, rank: int = 0, reader: LogReader | None = None) -> Iterator[bytes]:
        """What the workers said, as bytes: nobody knows what a crash printed.

        With a `reader` of this log, what it has not given yet.
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
    """The record in a file, None when it is missing or damaged."""
    try:
        return decode(kind, read_text(path))
    except (OSError, ValueError):
        return None
