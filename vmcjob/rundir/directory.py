"""One run's directory: found, created in one step, started again."""

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
    refresh,
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

REMOVED = "removed or moved while its worker was running; nothing more is written"
OLD = ".old"
_RUN_ID = re.compile(r".+-[0-9a-f]{10}")


@dataclass(frozen=True)
class RunDir(RunJournal):
    """The life of a run's directory. Creating this value touches no disk.

    `RunPaths` has the paths, `RunJournal` reads and writes the small files.
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
        """The run's directory below `root`, created in one step; an existing directory is kept.

        A directory of that name that holds another run, or no run, is refused.

        Args:
            root, record, spec_text: the runs root, the run's record and its resolved spec.
            start: results that the first step begins with; copied, as a run reads only its own
                directory.
            make_store: makes a store at a path, with results of steps that need not be repeated.
        """
        run_dir = cls(root / record.run_id)
        if not run_dir.exists:
            try:
                run_dir._build(record, spec_text, start, make_store)
            except OSError as error:
                # Another process may have been faster; then its directory is equally good.
                if not run_dir.exists:
                    reason = f"{error.filename or ''}: {error.strerror}".lstrip(": ")
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        reason = "its place is taken by something that is not a run; move that away"
                    raise RunDirError(f"{run_dir.path}: cannot be made: {reason}") from None
        run_dir.require(record)
        return run_dir

    def start_over(self, record: Record, spec_text: str) -> "RunDir":
        """Start the run again from its beginning; the old directory is kept aside and returned.

        RunDirError, without any change, if a worker is running.
        """
        number = 1 + max((int(run.path.suffix[1:]) for run in self.earlier), default=0)
        aside = RunDir(self.path.parent / OLD / f"{self.path.name}.{number}")
        start = self.start_path if self.start_path.exists() else None
        try:
            aside.path.parent.mkdir(exist_ok=True)
            self._build(record, spec_text, start, aside=aside.path)
        except OSError as error:
            raise RunDirError(f"{self.path}: cannot be started again: {error.strerror}") from None
        return aside

    @property
    def earlier(self) -> "list[RunDir]":
        """Earlier directories of this run that were put aside, oldest first."""
        found = [
            RunDir(path)
            for path in (self.path.parent / OLD).glob("*")
            if path.stem == self.path.name and path.suffix[1:].isdecimal()
        ]
        return sorted(found, key=lambda run: int(run.path.suffix[1:]))

    @classmethod
    def open(cls, path: Path) -> "RunDir":
        """An existing run directory; NotFoundError if `path` is not one."""
        run_dir = cls(path)
        if not run_dir.exists:
            reason = (
                "is not a run directory"
                if os.path.isdir(path)
                else "there is no such run; expected the directory of a run"
            )
            raise NotFoundError(f"{path}: {reason}")
        if not os.path.lexists(run_dir.record_path):
            run_dir.read_record()  # raises the error about the lost record
        return run_dir

    @property
    def exists(self) -> bool:
        """Whether there is a record, readable or not, or another file that only a run has.

        If the directory cannot be searched, its name decides.
        """
        try:
            os.lstat(self.record_path)
        except PermissionError:
            return self._has_run_id  # excludes lost+found
        except OSError:
            return self._has_run_id and any(map(os.path.lexists, self._traces))
        return True

    @property
    def _has_run_id(self) -> bool:
        return _RUN_ID.fullmatch(self.path.name) is not None

    @property
    def _traces(self) -> tuple[Path, ...]:
        """Files of a run beside its record."""
        written = self.heartbeat_path, self.submission_path, self.outcome_path, self.attempts_path
        return self.spec_path, self.store_path, self.lock_path, self.log_path, *written

    def require_presence(self) -> None:
        """RunDirError if the directory or its record was removed while the worker runs."""
        if not os.path.lexists(self.record_path):
            raise RunDirError(f"{self.path}: {REMOVED}")

    def require(self, record: Record) -> None:
        """RunDirError if the directory holds another run."""
        found = self.read_record()
        identity = ("run_id", "name", "seed", "science_sha256")
        if any(getattr(found, key) != getattr(record, key) for key in identity):
            raise RunDirError(f"{self.path}: holds another run ({found.run_id}); move it away")

    def beside(self, run_id: str) -> "RunDir":
        """Another run of the same runs root, whether it exists or not."""
        return RunDir(self.path.parent / run_id)

    @property
    def open_waits(self) -> tuple[str, ...]:
        """Ids of the runs that this run's submission waits for and that have not finished."""
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
        """Whether it has finished and has results that another run can copy."""
        outcome = self.read_outcome()
        return outcome is not None and outcome.outcome is Outcome.FINISHED and self.has_results

    def refresh(self) -> frozenset[str]:
        """The names of the run's files; afterwards, this host sees the files as they are now."""
        return refresh(self.path)

    def take_start(self) -> None:
        """Copy the start of this run from the run it waited for, if that is not done yet.

        RunDirError if that run was removed meanwhile or has not finished.
        """
        submission = self.read_submission()
        wanted = (submission.waits_for if submission else None) or {}
        for origin in (run_id for run_id, what in wanted.items() if what == RESULTS):
            if not self.start_path.exists():
                self._copy_start(self.beside(origin))

    def _copy_start(self, origin: "RunDir") -> None:
        """Copy the start in one step, so that a killed attempt leaves no half of it."""
        if not origin.exists or not origin.can_be_begun_with:
            why = "has not finished" if origin.exists else "has been removed or moved"
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

    def lock(self, patience_s: float = 0.0) -> AbstractContextManager[None]:
        """Hold the run's lock as its only worker; RunDirError names the other worker."""
        return lock(self.lock_path, f"{self.path}: already being run", patience_s)

    def _build(
        self,
        record: Record,
        spec_text: str,
        start: Path | None,
        make_store: Callable[[Path], None] | None = None,
        aside: Path | None = None,
    ) -> None:
        """Fill a directory beside the final place and rename it into this place in one step.

        With `aside`, the existing directory is first moved there, unless a worker is running.
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
