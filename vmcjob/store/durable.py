"""A local Zarr store whose writes are complete or absent, also after a power cut."""

import asyncio
import errno
import os
import shutil
from pathlib import Path

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore


class DurableStore(LocalStore):
    """A local Zarr store that writes each file atomically and syncs the file to the disk.

    Zarr's own local store renames without syncing. After a power cut, a committed file could be
    empty. Unfinished files are kept in a folder beside the store, where a reader that lists a group
    does not see them.
    """

    async def set(self, key: str, value: Buffer) -> None:
        """Write one file in a thread, so that several writes overlap."""
        await asyncio.to_thread(self.set_sync, key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write one file: a copy beside the store, synced, then renamed into place."""
        self._check_writable()
        path = self.root / key
        self._make_folder(path.parent)
        copy = partial_folder(self.root) / key.replace("/", ".")
        copy.parent.mkdir(exist_ok=True)
        with copy.open("wb") as file:
            file.write(value.as_buffer_like())
            file.flush()
            os.fsync(file.fileno())
        copy.replace(path)
        sync_folder(path.parent)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder != self.root:
            if not self.root.is_dir():  # do not create a store again that a user has removed
                raise FileNotFoundError(f"{self.root} was removed")
            self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def partial_folder(root: Path) -> Path:
    """The folder for unfinished files of the store at `root`, on the same disk."""
    return root.with_name(f".{root.name}.partial")


def remove_abandoned(root: Path) -> None:
    """Remove unfinished files of a killed writer."""
    shutil.rmtree(partial_folder(root), ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to the disk, including renames."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems sync only files
            raise
    finally:
        os.close(descriptor)
