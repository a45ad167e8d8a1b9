"""One run's directory: found, made whole, begun anew."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vmcjob.errors import NotFoundError, RunDirError
from vmcjob.rundir.files import (
    remove_abandoned,
    write_whole,
)
from vmcjob.rundir.journal import RunJournal
from vmcjob.rundir.lock import lock
from vmcjob.rundir.records import (
    END,
    RESULTS,
    Outcome,
    Record,
    encode,
)
from vmcjob.store import peek

T = TypeVar("T")

REMOVED = "removed, or moved away, while its worker was at work; nothing more is written"
OLD = ".old"
_RUN_ID = re.compile(r".+-[0-9a-f]{10}")


@dataclass(frozen=True)
class RunDir(RunJournal):
    """The life of a run's directory. Making the value touches no disk.

    Its paths are those of `RunPaths`, its small files are read and written by `RunJournal`.
    """

    @classmethod
    def create(
        cls,
        root: Path,
        record: Record,
        spec_text: str,
        *,
        start: Path | None = None,
        make_store: Callable[[Path], None] | None = None,
    ) -> "RunDir":
        """The run's directory below `root`, made whole or not at all; an existing one is kept.

        A directory of that name that holds another run, or no run, is refused.

        Args:
            root, record, spec_text: where, who, and what it computes.
            start: results that its first step begins with, copied: a run reads its own directory.
            make_store: makes the results of steps that need not be done again, at a path.
        """
        run_dir = cls(root / record.run_id)
        if not run_dir.exists:
            try:
                run_dir._build(record, spec_text, start, make_store)
            except OSError as error:
                # Somebody else may have been faster; then theirs is as good as ours.
                if not run_dir.exists:
                    reason = f"{error.filename or ''}: {error.strerror}".lstrip(": ")
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        reason = "something that is no run is in its place; move that away"
                    raise RunDirError(f"{run_dir.path}: cannot be made: {reason}") from None
        run_dir.require(record)
        return run_dir

    def start_over(self, record: Record, spec_text: str) -> "RunDir":
        """Begin anew from the same start; the old directory is put aside, whole, and returned.

        RunDirError, and all is as it was, if somebody works on the run.
        """
        number = 1 + max((int(run.path.suffix[1:]) for run in self.earlier), default=0)
        aside = RunDir(self.path.parent / OLD / f"{self.path.name}.{number}")
        start = self.start_path if self.start_path.exists() else None
        try:
            aside.path.parent.mkdir(exist_ok=True)
            self._build(record, spec_text, start, aside=aside.path)
        except OSError as error:
            raise RunDirError(f"{self.path}: cannot be begun anew: {error.strerror}") from None
        return aside

    @property
    def earlier(self) -> "list[RunDir]":
        """What was put aside of this run, oldest first."""
        found = [
            RunDir(path)
            for path in (self.path.parent / OLD).glob("*")
            if path.stem == self.path.name and path.suffix[1:].isdecimal()
        ]
        return sorted(found, key=lambda run: int(run.path.suffix[1:]))

    @classmethod
    def open(cls, path: Path) -> "RunDir":
        """An existing run directory, or a NotFoundError."""
        run_dir = cls(path)
        if not run_dir.exists:
            reason = "is not a run directory" if os.path.isdir(path) else "there is no such run"
            raise NotFoundError(f"{path}: {reason}")
        if not os.path.lexists(run_dir.record_path):
            run_dir.read_record()  # says that it is lost
        return run_dir

    @property
    def exists(self) -> bool:
        """Whether there is a record, readable or not, or something else that only a run has.

        Where nothing can be seen, the directory's name must do.
        """
        try:
            os.lstat(self.record_path)
        except PermissionError:
            return self._has_run_id  # and not lost+found
        except OSError:
            return self._has_run_id and any(map(os.path.lexists, self._traces))
        return True

    @property
    def _has_run_id(self) -> bool:
        return _RUN_ID.fullmatch(self.path.name) is not None

    @property
    def _traces(self) -> tuple[Path, ...]:
        """What a run has beside its record."""
        written = self.heartbeat_path, self.submission_path, self.outcome_path, self.attempts_path
        return self.spec_path, self.store_path, self.lock_path, self.log_path, *written

    def require_presence(self) -> None:
        """RunDirError if the directory, or its record, has gone from under its worker."""
        if not os.path.lexists(self.record_path):
            raise RunDirError(f"{self.path}: {REMOVED}")

    def require(self, record: Record) -> None:
        """RunDirError if the directory holds another run than this."""
        found = self.read_record()
        identity = ("run_id", "name", "seed", "science_sha256")
        if any(getattr(found, key) != getattr(record, key) for key in identity):
            raise RunDirError(f"{self.path}: holds another run ({found.run_id}); move it away")

    def beside(self, run_id: str) -> "RunDir":
        """Another run of the same runs root, there or not."""
        return RunDir(self.path.parent / run_id)

    @property
    def open_waits(self) -> tuple[str, ...]:
        """The ids of the runs that its submission waits for, and that have not finished yet."""
        submission = self.read_submission()
        wanted = (submission.waits_for if submission else None) or {}
        return tuple(run_id for run_id in wanted if not self.beside(run_id).can_be_begun_with)

    @property
    def comes_after(self) -> tuple[str, ...]:
        """The ids of the runs that its user wants finished before it begins; none once it has."""
        submission, waits = self.read_submission(), self.read_waits()
        if self.read_heartbeat() is not None or (submission and submission.started_at):
            return ()
        wanted = waits.after if waits else (submission and submission.waits_for) or {}
        return tuple(run_id for run_id, what in wanted.items() if what == END)

    @property
    def can_be_begun_with(self) -> bool:
        """Whether it has finished, and another run can have a copy of what it has learnt."""
        outcome = self.read_outcome()
        return outcome is not None and outcome.outcome is Outcome.FINISHED and self.has_results

    def take_start(self) -> None:
        """Copy what it begins with from the run that it has waited for, if that is not done yet.

        RunDirError if that run has gone meanwhile, or has not finished after all.
        """
        submission = self.read_submission()
        wanted = (submission.waits_for if submission else None) or {}
        for origin in (run_id for run_id, what in wanted.items() if what == RESULTS):
            if not self.start_path.exists():
                self._copy_start(self.beside(origin))

    def _copy_start(self, origin: "RunDir") -> None:
        """At once: an attempt that is killed half-way leaves no half of a start."""
        if not origin.exists or not origin.can_be_begun_with:
            why = "has not finished" if origin.exists else "has been removed, or moved away"
            again = f"vmcjob resume {origin.path.name} {self.path.name}"
            advice = again if origin.exists else "submit its spec again, then this one's"
            raise RunDirError(f"train.start_from: {origin.path} {why}; {advice}")
        remove_abandoned(self.path.glob(".start.*"))
        staging = self.path / f".start.{os.urandom(4).hex()}"
        try:
            peek.copy_start(origin.store_path, staging)
            os.rename(staging, self.start_path)
        except OSError as error:
            raise RunDirError(f"{self.start_path}: cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def lock(self) -> AbstractContextManager[None]:
        """Be the run's only worker; RunDirError names the other one."""
        return lock(self.lock_path, f"{self.path}: already being run")

    def _build(
        self,
        record: Record,
        spec_text: str,
        start: Path | None,
        make_store: Callable[[Path], None] | None = None,
        aside: Path | None = None,
    ) -> None:
        """Fill a directory beside the final place and move it there in one step.

        What is in that place goes aside first, unless somebody works on it.
        """
        root, name = self.path.parent, self.path.name
        staging = RunDir(root / f".{name}.{os.urandom(4).hex()}")
        remove_abandoned(root.glob(f".{name}.{'[0-9a-f]' * 8}"))
        try:
            staging.path.mkdir(parents=True)
            write_whole(staging.spec_path, spec_text)
            write_whole(staging.record_path, encode(record))
            if start is not None:
                peek.copy_start(start, staging.start_path)
            if make_store is not None:
                make_store(staging.store_path)
            if aside is not None:
                with self.lock():
                    os.rename(self.path, aside)
            os.rename(staging.path, self.path)
        finally:
            shutil.rmtree(staging.path, ignore_errors=True)
