"""A TOML text that knows its own lines, so that a complaint can show what it is about."""

import errno
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli

from vmcjob.document.positions import KeyPath, Place, Scan
from vmcjob.document.syntax import explain
from vmcjob.errors import NotFoundError, SpecError

MAX_BYTES = 2**20
"""Of a document: a hundred times what a thousand atoms need."""
MAX_MESSAGE = 600
"""Characters of one complaint; the values that it quotes may be longer."""
MAX_COMPLAINTS = 50
TOO_LARGE = f"larger than {MAX_BYTES // 2**20} MiB, so no document for vmcjob"
AND_MORE = "and more, which is not said until this is mended"
BYTE_ORDER_MARK = "\ufeff"
"""Which some editors put in front of UTF-8."""
_WIDEST_LINE = 100
"""Characters of a line that a complaint shows; a longer line is cropped around the caret."""


@dataclass(frozen=True, order=True)
class Complaint:
    """One thing that is wrong, and where: an offset into the text, or the whole of it."""

    offset: int
    message: str


WHOLE_TEXT = -1
"""The offset of a complaint that no single line is to blame for."""


@dataclass(frozen=True)
class Document:
    """A parsed TOML text: its tables, and the place of each of its keys and values."""

    source: str
    text: str
    tables: dict[str, Any] = field(repr=False)  # whatever TOML allows: judged by the reader

    @classmethod
    def read(cls, path: Path) -> "Document":
        """Read a file; NotFoundError where there is none, SpecError where it is not TOML."""
        try:
            content = _read_at_once(path)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"{path}: no such file") from None
        except OSError as problem:
            reason = (problem.strerror or type(problem).__name__).lower()
            raise SpecError([f"{path}: cannot be read: {reason}"]) from None
        if len(content) > MAX_BYTES:
            raise SpecError([f"{path}: {TOO_LARGE}"])
        return cls.parse(_decode(content, str(path)), str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> "Document":
        """Parse a text; `source` is what complaints call it. SpecError if it is not TOML."""
        if len(text) > MAX_BYTES:
            raise SpecError([f"{source}: {TOO_LARGE}"])
        text = text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n")
        try:
            return cls(source, text, tomli.loads(text))
        except tomli.TOMLDecodeError as problem:
            offset, words = explain(problem)
        except RecursionError:
            offset, words = WHOLE_TEXT, "brackets are nested too deeply"
        except ValueError:
            offset, words = WHOLE_TEXT, "a number has too many digits"
        complaint = Complaint(offset, f"not valid TOML: {words}")
        raise SpecError([cls(source, text, {}).render(complaint)])

    @cached_property
    def places(self) -> dict[KeyPath, Place]:
        return Scan(self.text).places

    def place(self, path: KeyPath) -> Place:
        """Where a key and its value are written, or the nearest table or array around them."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(WHOLE_TEXT, WHOLE_TEXT))

    def render(self, complaint: Complaint) -> str:
        """The complaint as a compiler would print it: address, sentence, line and caret."""
        message = _in_short(complaint.message)
        if complaint.offset == WHOLE_TEXT:
            return f"{self.source}:1:1: {message}"
        start = self.text.rfind("\n", 0, complaint.offset) + 1
        line, _, _ = self.text[start:].partition("\n")
        row, column = self.text.count("\n", 0, start), complaint.offset - start
        address = f"{self.source}:{row + 1}:{column + 1}"
        return f"{address}: {message}\n{_point_at(line, column)}"

    def refuse(self, complaints: Iterable[Complaint]) -> None:
        """Raise all complaints as one SpecError, in the order of the text; none is no error."""
        if complaints := sorted(complaints):
            shown = [self.render(complaint) for complaint in complaints[:MAX_COMPLAINTS]]
            more = [f"{self.source}: {AND_MORE}"] if complaints[MAX_COMPLAINTS:] else []
            raise SpecError([*shown, *more])


def _read_at_once(path: Path) -> bytes:
    """The first bytes of a file, one more than it may have; OSError for what could make us wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(MAX_BYTES + 1)


def _in_short(message: str) -> str:
    """A message of one line that a terminal can bear, its middle left out if it is too long."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} … {message[-MAX_MESSAGE // 2 :]}"
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in message)


def _decode(content: bytes, source: str) -> str:
    """UTF-8, with or without the mark that some editors put in front."""
    content = content.removeprefix(BOM_UTF8)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        text = content.decode("utf-8", errors="replace")
        offset = len(content[: problem.start].decode("utf-8"))
        message = f"not UTF-8: byte 0x{content[problem.start]:02x}; save the file as UTF-8"
        complaint = Complaint(offset, message)
        raise SpecError([Document(source, text, {}).render(complaint)]) from None


def _point_at(line: str, column: int) -> str:
    """The line, cropped if it is long, and below it a caret that tabs do not shift."""
    first = max(0, min(column - _WIDEST_LINE // 2, len(line) - _WIDEST_LINE))
    last = first + _WIDEST_LINE
    shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line[first:last])
    margin = "".join("\t" if c == "\t" else " " for c in shown[: column - first])
    if first > 0:
        shown = f"…{shown[1:]}"
    if last < len(line):
        shown = f"{shown[:-1]}…"
    return f"    {shown}\n    {margin}^"
