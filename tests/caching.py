"""A host that sees files through a client of a file server which remembers them for a minute."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MEMORY_S = 60.0  # acregmax and acdirmax of an NFS mount, by default


class CachingClient:
    """What this process sees below a folder.

    Contents and absences are remembered by path, until they are a minute old, or, as with NFS,
    until their folder is opened. Files that this process replaces or removes are up to date.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, *, heeds_listing: bool = True):
        self.now = 1_700_000_000.0
        self.is_used = True
        self._root, self._heeds_listing = f"{root}/", heeds_listing
        self._known: dict[str, tuple[float, bytes | None]] = {}
        self._real = {name: getattr(os, name) for name in ("open", "stat", "lstat", "listdir")}
        self._real |= {name: getattr(os, name) for name in ("replace", "unlink")}
        for name in self._real:
            patch.setattr(os, name, getattr(self, name))
        patch.setattr("time.time", lambda: self.now)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Inside, files are used by another host."""
        self.is_used = False
        yield
        self.is_used = True

    def open(self, path: Any, flags: int, *more: Any, **options: Any) -> int:
        is_read = not flags & (os.O_WRONLY | os.O_RDWR)
        if not (is_read and self._is_file(path)):
            return self._real["open"](path, flags, *more, **options)
        content = self._content(path)
        file = os.memfd_create("cached")
        os.write(file, content)
        os.lseek(file, 0, os.SEEK_SET)
        return file

    def stat(self, path: Any, **options: Any) -> os.stat_result:
        return self._look(self._real["stat"], path, options)

    def lstat(self, path: Any, **options: Any) -> os.stat_result:
        return self._look(self._real["lstat"], path, options)

    def listdir(self, path: Any = ".") -> list[str]:
        if self.is_used and self._heeds_listing:
            for known in [one for one in self._known if os.path.dirname(one) == str(path)]:
                del self._known[known]
        return self._real["listdir"](path)

    def replace(self, source: Any, target: Any, **options: Any) -> None:
        self._real["replace"](source, target, **options)
        if self.is_used:
            self._known.pop(str(target), None)

    def unlink(self, path: Any, **options: Any) -> None:
        if self._is_file(path):
            self._content(path)  # a client does not ask the server to remove what is absent
            self._known.pop(str(path), None)
        self._real["unlink"](path, **options)

    def _is_file(self, path: Any) -> bool:
        if not self.is_used or isinstance(path, int) or not str(path).startswith(self._root):
            return False
        return not os.path.basename(path).startswith(".") and Path(path).suffix != ""

    def _look(self, ask: Any, path: Any, options: dict[str, Any]) -> os.stat_result:
        if self._is_file(path):
            self._content(path)
        return ask(path, **options)

    def _content(self, path: Any) -> bytes:
        """The remembered content; FileNotFoundError if the file is remembered as absent."""
        seen_at, content = self._known.get(str(path), (float("-inf"), None))
        if self.now - seen_at >= MEMORY_S:
            content = self._read(path)
            if content is not None or os.path.isdir(os.path.dirname(path)):
                self._known[str(path)] = self.now, content
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return content

    def _read(self, path: Any) -> bytes | None:
        try:
            file = self._real["open"](path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with open(file, "rb") as opened:
            return opened.read()
