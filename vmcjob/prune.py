"""What of a runs root nobody needs any more: found by state and age, and removed under locks.

Archives stay, whoever is asked to go: somebody has made them to keep them.
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
from vmcjob.scheduler import job_folders
from vmcjob.status import Row, State
from vmcjob.store.files import archive_of

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")
REMOVABLE = frozenset(state for state in State if not state.is_active)
"""States whose runs may be removed whole, if their user names the state."""


class Kind(StrEnum):
    """What is removed."""

    LOG = "log"  # what the workers of a finished run said
    JOB = "job"  # script, request and logs of a job that no unfinished run refers to
    ASIDE = "aside"  # results that `rerun` has put aside
    RUN = "run"  # everything of a run, its results too
    COPY = "copy"  # results in their directory, of a run that has them in an archive too
    REMAINS = "remains"  # of a command that was killed


@dataclass(frozen=True)
class Item:
    """Something that can go."""

    kind: Kind
    name: str
    paths: tuple[Path, ...]
    changed_at: float  # seconds since the epoch
    size: int  # bytes on the disk
    n_files: int
    run: RunDir | None = None  # whose lock has to be held


@dataclass(frozen=True)
class Policy:
    """Whose things go, and from which age on."""

    before: float  # what was changed after this moment stays, seconds since the epoch
    states: frozenset[State] = frozenset()  # runs of these go as a whole
    copies: bool = False  # what is archived goes where it is not


def find(root: Path, rows: Sequence[Row], policy: Policy, *, is_all: bool) -> list[Item]:
    """What can go, the largest first.

    Args:
        root: where the runs live.
        rows: the runs whose things may go, as they are now.
        policy: which of it goes.
        is_all: whether they are all below `root`; jobs, which may be of several, go only then.
    """
    found = [*_of_runs(rows, policy), *_aside(root, rows, is_all)]
    if is_all:
        found += [*_jobs(root, rows), *_remains(root)]
    old = [item for item in found if item.changed_at < policy.before]
    return sorted(old, key=lambda item: (-item.size, item.name))


def remove(item: Item) -> None:
    """Remove it; RunDirError, and it stays, if somebody is at work there or forbids it.

    To be called under the runs root's lock, so that nobody decides meanwhile to start the run. But
    a copy is compared first with its archive, which takes long: StoreError if they differ.
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


def _of_runs(rows: Iterable[Row], policy: Policy) -> Iterator[Item]:
    """Runs in one of the named states, and the logs and copies of those that have finished."""
    for row in rows:
        has_archive = _has_archive(row.run)
        if row.state in policy.states & REMOVABLE and not has_archive:
            yield _item(Kind.RUN, row.run_id, [row.run.path], row.run, _last_change(row.run))
        elif row.state is State.FINISHED:
            if logs := row.run.log_files():
                yield _item(Kind.LOG, row.run_id, logs, row.run)
            if policy.copies and has_archive and row.run.store_path.is_dir():
                yield _item(Kind.COPY, row.run_id, [row.run.store_path], row.run)


def kept(rows: Iterable[Row], policy: Policy) -> list[str]:
    """Runs in one of the named states that stay, for they are archived."""
    return [row.run_id for row in rows if row.state in policy.states and _has_archive(row.run)]


def require_archived(item: Item) -> None:
    """StoreError if a copy and its archive differ, so that it would not be removed."""
    from vmcjob.store.archive import require_equal

    for path in item.paths:
        require_equal(path)


def _has_archive(run: RunDir) -> bool:
    return archive_of(run.store_path).exists()


def _remove_copy(run: RunDir) -> None:
    from vmcjob.store.archive import remove_directory  # needs Zarr, as nothing else here

    remove_directory(run.store_path)


def _aside(root: Path, rows: Iterable[Row], is_all: bool) -> Iterator[Item]:
    """What was put aside of the runs, or of all there ever were."""
    names = {row.run_id for row in rows}
    for path in (root / OLD).glob("*"):
        run = RunDir(path)
        if (is_all or path.stem in names) and not _has_archive(run):
            yield _item(Kind.ASIDE, path.name, [path], run, _last_change(run))


def _jobs(root: Path, rows: Iterable[Row]) -> Iterator[Item]:
    """Jobs that are of no use but to look up how something went that went well."""
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
    """Folders that were being made or removed."""
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
    """The item with what it takes on the disk; without a time, as old as its youngest file."""
    sizes, times = [0], [0.0]
    for path in paths:
        with suppress(OSError):  # gone meanwhile
            times.append(os.lstat(path).st_mtime)
        for file in _files(path):
            with suppress(OSError):
                status = os.lstat(file)
                sizes.append(status.st_blocks * 512)
                times.append(status.st_mtime)
    when = max(times) if changed_at is None else changed_at
    return Item(kind, name, tuple(paths), when, sum(sizes), len(sizes) - 1, run)


def _files(path: Path) -> Iterator[str]:
    """A file, or all files below a folder; links are not followed."""
    if not path.is_dir() or path.is_symlink():
        yield str(path)
        return
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)


def _last_change(run: RunDir) -> float | None:
    """When something last happened to a run, as far as it can say."""
    outcome, beat, submission = run.read_outcome(), run.read_heartbeat(), run.read_submission()
    times = [record.time for record in (outcome, beat) if record is not None]
    if submission is not None:
        times.append(submission.submitted_at)
    with suppress(RunDirError):
        times.append(run.read_record().created)
    return max(times, default=None)


def _remove_all(paths: Iterable[Path]) -> None:
    """Remove files, and folders whole: each is out of sight at once, however long it takes."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            hidden = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
            os.rename(path, hidden)
            shutil.rmtree(hidden)
        else:
            path.unlink(missing_ok=True)
