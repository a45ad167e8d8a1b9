"""Small files: read without blocking, replaced atomically, appended by line; folders swept."""

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vmcjob.errors import RunDirError

DISK_FULL = "the disk is full: free some space, then vmcjob resume goes on"
FULL_BYTES = 2**14  # with less free space, even the small files of a run cannot be replaced
MAX_BYTES = 2**24  # bytes of a file that is read completely; real ones have a few thousand
ABANDONED_S = 3600.0  # no writer takes so long to fill a folder


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading; OSError also for pipes and devices, which could block the reader."""

    def at_once(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    file = open(path, "rb", opener=at_once)  # noqa: SIM115 -- the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file")
    return file


def read_text(path: Path) -> str:
    """Text of a small file."""
    with open_file(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content.decode("utf-8")


def refresh(folder: Path) -> frozenset[str]:
    """The names in a folder, as its file server has them now; none if it cannot be listed.

    A client of NFS remembers names, absent ones too, and where they lead for up to a minute. When
    a folder is opened, the client asks the server whether the folder has changed, and then forgets
    all of its names.
    """
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, or raise RunDirError."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be written: {error.strerror}") from None


def remove_file(path: Path) -> None:
    """Remove a file, if it exists."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be removed: {error.strerror}") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that no reader ever sees a part of it, even after a power cut."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    staging = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(staging, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staging, path)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: str) -> None:
    """Append a line in a single write, so that lines of two writers do not mix."""
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o666)
        try:
            os.write(descriptor, line.encode("utf-8"))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RunDirError(f"{path}: cannot be written: {error.strerror}") from None


def remove_abandoned(folders: Iterable[Path]) -> None:
    """Remove folders whose writer must have been killed: unchanged for `ABANDONED_S`."""
    for folder in folders:
        with suppress(OSError):
            if time.time() - os.stat(folder).st_mtime > ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)


def is_about_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_disk_full(folder: Path) -> bool:
    """Whether the disk of a folder is full; False if this is unknown."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < FULL_BYTES
