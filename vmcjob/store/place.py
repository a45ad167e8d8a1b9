"""The storage of a store for Zarr: its directory, or its archive for reading."""

import os
from pathlib import Path

from zarr.abc.store import Store
from zarr.storage import LocalStore, ZipStore

from vmcjob.errors import StoreError
from vmcjob.store.durable import DurableStore
from vmcjob.store.files import archive_of, is_archived


def place_of(path: Path, *, is_writable: bool = False) -> Store:
    """The storage of the store at `path`; StoreError if missing, or archived but to be written."""
    if os.path.isdir(path):  # unlike Path.is_dir, no error without permission
        return DurableStore(path) if is_writable else LocalStore(path, read_only=True)
    if not is_archived(path):
        raise StoreError(f"{path}: there is no store")
    archive = archive_of(path)
    if is_writable:
        raise StoreError(f"{archive}: is read-only; run vmcjob archive --restore first")
    return ZipStore(archive, mode="r")
