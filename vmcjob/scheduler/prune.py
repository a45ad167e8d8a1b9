"""Find files that are no longer needed below a runs root, by state and age, and remove them.

Files are removed under locks. Archives are never removed: a user made them to keep results.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vmcjob.errors import RunDirError
from vmcjob.rundir import OLD, RunDir, list_runs
from vmcjob.runs.status import RunStatus, State
from vmcjob.scheduler import job_folders
from vmcjob.store.files import archive_of

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")
REMOVABLE = frozenset(state for state in State if not state.is_active)
"""States whose runs may be removed as a whole, if the user names the state."""


class Kind(StrEnum):
    """The kind of a removable item."""

    LOG = "log"  # output of the workers of a finished run
    JOB = "job"  # script, request and logs of a job that no unfinished run needs
    ASIDE = "aside"  # earlier results that `rerun` put aside
    RUN = "run"  # a whole run with its results
    COPY = "copy"  # directory of results that are also in an archive
    REMAINS = "remains"  # unfinished folders of a killed command


@dataclass(frozen=True)
class Item:
    """An item that can be removed."""

    kind: Kind
    name: str
    paths: tuple[Path, ...]
    changed_at: float  # seconds since the epoch
    size: int  # bytes on the disk
    n_files: int
    run: RunDir | None = None  # the run whose lock must be held


@dataclass(frozen=True)
class Policy:
    """The rule for what is removed."""

    before: float  # items changed later stay; seconds since the epoch
    states: frozenset[State] = frozenset()  # runs in these states are removed as a whole
    copies: bool = False  # remove directories that are also archived


def find(root: Path, rows: Sequence[RunStatus], policy: Policy, *, is_all: bool) -> list[Item]:
    """The removable items, largest first.

    Args:
        root: the runs root.
        rows: the runs whose files may be removed, with their states.
        policy: the rule for what is removed.
        is_all: whether `rows` are all runs below `root`. Only then jobs are included, because a job
            may
            belong to several runs.
    """
    found = [*_of_runs(rows, policy), *_aside(root, rows, is_all)]
    if is_all:
        found += [*_jobs(root, rows), *_remains(root)]
    old = [item for item in found if item.changed_at < policy.before]
    return sorted(old, key=lambda item: (-item.size, item.name))


def remove(item: Item) -> None:
    """Remove an item; RunDirError, without removal, if it is in use or removal is forbidden.

    Call this under the lock of the runs root, so that no process starts the run meanwhile. A copy
    is first compared with its archive, which takes long: StoreError if they differ.
    """
    try:
        if item.run is None:
            _remove_all(item.paths)
        elif item.kind is Kind.COPY:
            with item.run.lock():
                _remove_copy(item.run)
        else:
            with item.run.lock():
                _remove_all(item.paths)
    except OSError as error:
        reason = f"{error.filename or item.name}: {error.strerror}"
        raise RunDirError(f"{item.name}: cannot be removed: {reason}") from None


def _of_runs(rows: Iterable[RunStatus], policy: Policy) -> Iterator[Item]:
    """Runs in a named state, and logs and copies of finished runs."""
    for row in rows:
        has_archive = _has_archive(row.run)
        if row.state in policy.states & REMOVABLE and not has_archive:
            yield _item(Kind.RUN, row.run_id, [row.run.path], row.run, _last_change(row.run))
        elif row.state is State.FINISHED:
            if logs := row.run.log_files():
                yield _item(Kind.LOG, row.run_id, logs, row.run)
            if policy.copies and has_archive and row.run.store_path.is_dir():
                yield _item(Kind.COPY, row.run_id, [row.run.store_path], row.run)


def kept(rows: Iterable[RunStatus], policy: Policy) -> list[str]:
    """Ids of runs in a named state that stay because they are archived."""
    return [row.run_id for row in rows if row.state in policy.states and _has_archive(row.run)]


def require_archived(item: Item) -> None:
    """StoreError if a copy differs from its archive, so that it would not be removed."""
    from vmcjob.store.archive import require_equal

    for path in item.paths:
        require_equal(path)


def _has_archive(run: RunDir) -> bool:
    return archive_of(run.store_path).exists()


def _remove_copy(run: RunDir) -> None:
    from vmcjob.store.archive import remove_directory  # the only import of Zarr in this module

    remove_directory(run.store_path)


def _aside(root: Path, rows: Iterable[RunStatus], is_all: bool) -> Iterator[Item]:
    """Directories that were put aside, of these runs or of all runs."""
    names = {row.run_id for row in rows}
    for path in (root / OLD).glob("*"):
        run = RunDir(path)
        if (is_all or path.stem in names) and not _has_archive(run):
            yield _item(Kind.ASIDE, path.name, [path], run, _last_change(run))


def _jobs(root: Path, rows: Iterable[RunStatus]) -> Iterator[Item]:
    """Folders of jobs that only finished runs refer to."""
    settled = {row.run for row in rows if row.state is State.FINISHED}
    needed = {
        submission.job_name
        for run in list_runs(root)
        if run not in settled and (submission := run.read_submission())
    }
    for folder in job_folders(root):
        if folder.name not in needed:
            yield _item(Kind.JOB, folder.name, [folder])


def _remains(root: Path) -> Iterator[Item]:
    """Unfinished folders of killed commands."""
    for path in root.glob(".*"):
        if _UNFINISHED.fullmatch(path.name) and path.is_dir():
            yield _item(Kind.REMAINS, path.name, [path])


def _item(
    kind: Kind,
    name: str,
    paths: Sequence[Path],
    run: RunDir | None = None,
    changed_at: float | None = None,
) -> Item:
    """An item with its size on the disk; without a time, as old as its youngest file."""
    sizes, times = [0], [0.0]
    for path in paths:
        with suppress(OSError):  # removed meanwhile
            times.append(os.lstat(path).st_mtime)
        for file in _files(path):
            with suppress(OSError):
                status = os.lstat(file)
                sizes.append(status.st_blocks * 512)
                times.append(status.st_mtime)
    when = max(times) if changed_at is None else changed_at
    return Item(kind, name, tuple(paths), when, sum(sizes), len(sizes) - 1, run)


def _files(path: Path) -> Iterator[str]:
    """A file, or all files below a folder, without following links."""
    if not path.is_dir() or path.is_symlink():
        yield str(path)
        return
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)


def _last_change(run: RunDir) -> float | None:
    """Time of the last recorded event of a run; None if unknown."""
    outcome, beat, submission = run.read_outcome(), run.read_heartbeat(), run.read_submission()
    times = [record.time for record in (outcome, beat) if record is not None]
    if submission is not None:
        times.append(submission.submitted_at)
    with suppress(RunDirError):
        times.append(run.read_record().created)
    return max(times, default=None)


def _remove_all(paths: Iterable[Path]) -> None:
    """Remove files and whole folders; a folder is first renamed, so it disappears at once."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            hidden = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
            os.rename(path, hidden)
            shutil.rmtree(hidden)
        else:
            path.unlink(missing_ok=True)
