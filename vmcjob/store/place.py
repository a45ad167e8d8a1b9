"""Where the bytes of a store are, as Zarr takes it: its directory, or its archive to read from."""

import os
from pathlib import Path

from zarr.abc.store import Store
from zarr.storage import LocalStore, ZipStore

from vmcjob.errors import StoreError
from vmcjob.store.durable import DurableStore
from vmcjob.store.files import archive_of, is_archived


def place_of(path: Path, *, is_writable: bool = False) -> Store:
    """The place of the store at `path`; StoreError where there is none, or none to write to."""
    if os.path.isdir(path):  # unlike Path.is_dir, no error without permission
        return DurableStore(path) if is_writable else LocalStore(path, read_only=True)
    if not is_archived(path):
        raise StoreError(f"{path}: there is no store")
    archive = archive_of(path)
    if is_writable:
        raise StoreError(f"{archive}: is only to be read; vmcjob archive --restore first")
    return ZipStore(archive, mode="r")
