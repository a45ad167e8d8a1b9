"""The files of a store by their names in it: in its directory, or in the archive in its place.

An archive is a zip file beside where the directory was, with the same files under the same names,
as Zarr reads them. Where there are both, the directory counts.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

MAX_BYTES = 2**24  # bytes of a file of metadata; ours have a few thousand


def archive_of(store: Path) -> Path:
    """Where the archive of a store is."""
    return store.with_name(f"{store.name}.zip")


def is_archived(store: Path) -> bool:
    """Whether a store has but its archive."""
    return not os.path.isdir(store) and os.path.isfile(
        archive_of(store)
    )  # no error without permission


class Files(Protocol):
    """The files of a store; names have slashes between folders."""

    def read(self, name: str) -> bytes | None:
        """A small file; None where it is missing, not readable or could make a reader wait."""
        ...

    def names(self, folder: str) -> set[str]:
        """What is in a folder, files and folders."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        ...


def files_of(store: Path) -> Files:
    """The files of a store, wherever they are."""
    return _Archive(archive_of(store)) if is_archived(store) else _Directory(store)


class _Directory:
    """Files on the disk."""

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
    """Files in a zip file, which is closed between two questions."""

    def __init__(self, path: Path) -> None:
        from zipfile import BadZipFile, ZipFile

        self._path = path
        self._sizes: dict[str, int] = {}
        # One that cannot be read is as a directory without files.
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
