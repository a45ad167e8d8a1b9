"""The files of a store by name, from its directory or from its archive.

An archive is a zip file beside the directory, with the same files and names, readable by Zarr. If
both exist, the directory is used.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

MAX_BYTES = 2**24  # bytes of a metadata file; real ones have a few thousand


def archive_of(store: Path) -> Path:
    """Path of the archive of a store."""
    return store.with_name(f"{store.name}.zip")


def is_archived(store: Path) -> bool:
    """Whether a store has an archive and no directory."""
    return not os.path.isdir(store) and os.path.isfile(
        archive_of(store)
    )  # no error without permission


class Files(Protocol):
    """The files of a store; names use slashes between folders."""

    def read(self, name: str) -> bytes | None:
        """Content of a small file; None if it is missing, unreadable, or could block."""
        ...

    def names(self, folder: str) -> set[str]:
        """Names of the files and folders in a folder."""
        ...

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        ...


def files_of(store: Path) -> Files:
    """The files of a store, from its directory or archive."""
    return _Archive(archive_of(store)) if is_archived(store) else _Directory(store)


class _Directory:
    """The files of a directory on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> bytes | None:
        try:
            path = self._path / name
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                return None
            return path.read_bytes()
        except OSError:
            return None

    def names(self, folder: str) -> set[str]:
        try:
            return set(os.listdir(self._path / folder))
        except OSError:
            return set()

    def has(self, name: str) -> bool:
        return os.path.exists(self._path / name)


class _Archive:
    """The files of a zip file, which is opened and closed for each access."""

    def __init__(self, path: Path) -> None:
        from zipfile import BadZipFile, ZipFile

        self._path = path
        self._sizes: dict[str, int] = {}
        # Treat an unreadable archive like a directory without files.
        with suppress(OSError, ValueError, BadZipFile), ZipFile(path) as archive:
            self._sizes = {info.filename: info.file_size for info in archive.infolist()}

    def read(self, name: str) -> bytes | None:
        from zipfile import ZipFile

        if self._sizes.get(name, MAX_BYTES + 1) > MAX_BYTES:
            return None
        try:
            with ZipFile(self._path) as archive:
                return archive.read(name)
        except Exception:  # damaged bytes can break the decoder in any way
            return None

    def names(self, folder: str) -> set[str]:
        inside = f"{folder}/"
        return {
            name.removeprefix(inside).partition("/")[0]
            for name in self._sizes
            if name.startswith(inside)
        }

    def has(self, name: str) -> bool:
        return name in self._sizes
