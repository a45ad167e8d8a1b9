"""A local Zarr store whose writes are whole or absent, also after a power cut."""

import asyncio
import errno
import os
import shutil
from pathlib import Path

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore


class DurableStore(LocalStore):
    """Each write is on the disk when it returns, and never seen half done.

    Zarr's own local store renames without syncing, so a power cut could leave an empty file where
    committed rows were. Unfinished files wait in a folder beside the store, never inside it, where
    a reader that lists a group would stumble over them.
    """

    async def set(self, key: str, value: Buffer) -> None:
        """Write one file without holding up the event loop, so that writes overlap."""
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
            if not self.root.is_dir():  # a store that someone removed must not return as a ghost
                raise FileNotFoundError(f"{self.root} has vanished")
            self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def partial_folder(root: Path) -> Path:
    """Where unfinished files of the store at `root` wait: beside it, so on the same disk."""
    return root.with_name(f".{root.name}.partial")


def remove_abandoned(root: Path) -> None:
    """Remove what a killed writer left unfinished."""
    shutil.rmtree(partial_folder(root), ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries, and so the renames in it, to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems sync only files
            raise
    finally:
        os.close(descriptor)
