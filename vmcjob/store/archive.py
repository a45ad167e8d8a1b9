"""Pack the store of a finished run into one zip file, and unpack it again, with verification.

The archive, or the directory made from it, appears complete in one renaming. The source stays until
`remove_directory` or `remove_archive`. So a process that is killed here leaves one of the two
complete, or both.
"""

import os
import shutil
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore, ZipStore

from vmcjob.errors import StoreError
from vmcjob.store.durable import partial_folder, remove_abandoned, sync_folder
from vmcjob.store.files import archive_of, is_archived
from vmcjob.store.runstore import RunStore

DAMAGED = "it is damaged; put a copy of it in its place, or begin the run anew with vmcjob rerun"


class Amount(NamedTuple):
    """The size of a store."""

    n_files: int
    n_bytes: int


def measure(path: Path) -> Amount:
    """The size of a store, directory or archive; zero if it cannot be read."""
    try:
        if is_archived(path):
            with ZipFile(archive_of(path)) as archive:
                sizes = [info.file_size for info in archive.infolist()]
        else:
            sizes = [os.path.getsize(path / name) for name in _names(path)]
    except (OSError, ValueError, BadZipFile):
        sizes = []
    return Amount(len(sizes), sum(sizes))


def is_packed(path: Path) -> bool:
    """Whether the archive of a store exists and equals its directory."""
    if not archive_of(path).exists():
        return False
    try:
        require_equal(path)
    except StoreError:
        return False
    return True


def require_equal(path: Path) -> None:
    """StoreError about the archive of the store at `path`, if it differs from the directory."""
    archive = archive_of(path)
    _require_equal(archive, path, archive)


def pack(path: Path, run_id: str) -> str | None:
    """Make the archive of the store at `path` and verify it; the directory stays.

    Returns a warning if a checkpoint is damaged; the archive is then damaged in the same way.
    Raises StoreError, without a new archive, if the store has lost rows or cannot be read.
    """
    warning = _require_whole(path, run_id)
    archive = archive_of(path)
    try:
        unfinished = _unfinished(path) / archive.name
        _write(path, unfinished)
        _require_equal(unfinished, path, archive)
        unfinished.replace(archive)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be archived: {error.strerror or error}") from error
    finally:
        remove_abandoned(path)
    return warning


def unpack(path: Path) -> None:
    """Make the directory of the store at `path` from its archive; verify it; keep the archive."""
    archive = archive_of(path)
    if path.exists():
        raise StoreError(f"{path}: is there already; nothing is restored over it")
    try:
        unfinished = _unfinished(path) / path.name
        with ZipFile(archive) as source:
            source.extractall(unfinished)
        _sync_all(unfinished)
        _require_equal(archive, unfinished, path)
        unfinished.rename(path)
        sync_folder(path.parent)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{archive}: cannot be restored: {error.strerror or error}") from error
    except Exception as error:  # damaged bytes can break the decoder in any way
        raise StoreError(f"{archive}: cannot be restored: {DAMAGED}") from error
    finally:
        remove_abandoned(path)


def remove_directory(path: Path) -> None:
    """Remove a store's directory; StoreError, without removal, if it differs from the archive."""
    require_equal(path)
    try:
        os.rename(path, _unfinished(path) / path.name)  # disappears in one step
        sync_folder(path.parent)
        remove_abandoned(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be removed: {error.strerror}") from error


def remove_archive(path: Path) -> None:
    """Remove a store's archive; StoreError, without removal, if it differs from the directory."""
    archive = archive_of(path)
    _require_equal(archive, path, path)
    try:
        archive.unlink()
    except OSError as error:
        raise StoreError(f"{archive}: cannot be removed: {error.strerror}") from error


def sweep(path: Path) -> None:
    """Remove unfinished files of a killed process."""
    remove_abandoned(path)


def _require_whole(path: Path, run_id: str) -> str | None:
    """StoreError if a store has lost data: an archive would hide when this happened."""
    store = RunStore.open(path, run_id=run_id)
    for phase in ("train", "evaluate"):
        store.series(phase)
    store.observed()
    store.snapshots()
    restored = store.checkpoint()
    return restored.warning if restored else None


def _write(path: Path, archive: Path) -> None:
    """Write the files of a directory to a zip file and sync; equal files give equal bytes."""
    with open(archive, "wb") as file:
        with ZipFile(file, "w", ZIP_STORED) as target:  # random digits do not compress
            for name in _names(path):
                entry = ZipInfo(name)
                entry.external_attr = 0o644 << 16
                with open(path / name, "rb") as source, target.open(entry, "w") as copy:
                    shutil.copyfileobj(source, copy)
        file.flush()
        os.fsync(file.fileno())


def _require_equal(archive: Path, directory: Path, blamed: Path) -> None:
    """StoreError if an archive and a directory differ in a file's name, metadata or array."""
    try:
        with ZipFile(archive) as zipped:
            names = sorted(name for name in zipped.namelist() if not name.endswith("/"))
            if names != _names(directory):
                raise StoreError(f"{blamed}: differs from {directory.name} in its list of files")
            for name in names:
                if name.endswith(".json") and zipped.read(name) != (directory / name).read_bytes():
                    raise StoreError(f"{blamed}: {name} differs from the one in {directory.name}")
        packed = ZipStore(archive, mode="r")
        try:
            _require_equal_arrays(packed, LocalStore(directory, read_only=True), blamed)
        finally:
            packed.close()
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{blamed}: cannot be verified: {error.strerror or error}") from error
    except Exception as error:  # as in unpack
        words = f"cannot be verified: {archive.name} or {directory.name} is damaged"
        raise StoreError(f"{blamed}: {words}") from error


def _require_equal_arrays(one: Store, other: Store, blamed: Path) -> None:
    roots = [
        zarr.open_group(place, mode="r", zarr_format=3, use_consolidated=False)
        for place in (one, other)
    ]
    for name, first in roots[0].members(max_depth=None):
        second = roots[1][name]
        if not (isinstance(first, zarr.Array) and isinstance(second, zarr.Array)):
            continue
        rows = first.chunks[0]
        for start in range(0, first.shape[0], rows):
            pair = [np.asarray(array[start : start + rows]) for array in (first, second)]
            if pair[0].tobytes() != pair[1].tobytes():  # bit by bit, also for NaN
                raise StoreError(f"{blamed}: {name} differs from row {start + 1} on")


def _names(path: Path) -> list[str]:
    """All files below a directory, as paths relative to it."""
    return sorted(
        Path(folder, name).relative_to(path).as_posix()
        for folder, _, names in os.walk(path)
        for name in names
    )


def _unfinished(path: Path) -> Path:
    """A new hidden folder for unfinished files, on the same disk; older ones are removed."""
    remove_abandoned(path)
    folder = partial_folder(path) / uuid4().hex
    folder.mkdir(parents=True)
    return folder


def _sync_all(path: Path) -> None:
    """Sync all files below a directory to the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))
