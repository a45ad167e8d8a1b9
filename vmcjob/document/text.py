"""A TOML text with the positions of its lines, so that a complaint can quote the line."""

import errno
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli

from vmcjob.document.positions import KeyPath, Place, Scan
from vmcjob.document.syntax import explain
from vmcjob.document.wording import closest
from vmcjob.errors import NotFoundError, SpecError

MAX_BYTES = 2**20
"""Largest size of a document: a hundred times the size of a thousand atoms."""
MAX_MESSAGE = 600
"""Largest number of characters of one complaint; quoted values may be longer and are cut."""
MAX_COMPLAINTS = 50
TOO_LARGE = f"larger than {MAX_BYTES // 2**20} MiB; vmcjob reads smaller documents only"
AND_MORE = "there are more mistakes; correct these first"
BYTE_ORDER_MARK = "\ufeff"
"""Character that some editors put in front of UTF-8."""
_WIDEST_LINE = 100
"""Characters of a line in a complaint; a longer line is cropped around the caret."""


@dataclass(frozen=True, order=True)
class Complaint:
    """A mistake and its place: an offset into the text, or the whole text."""

    offset: int
    message: str
    is_rendered: bool = False
    """Whether the message is shown as it is: the mistake is in another text, which it quotes."""


WHOLE_TEXT = -1
"""The offset of a complaint about the whole text."""


@dataclass(frozen=True)
class Document:
    """A parsed TOML text: its tables, and the place of each of its keys and values."""

    source: str
    text: str
    tables: dict[str, Any] = field(repr=False)  # any TOML; the reader checks the content
    flags: Mapping[KeyPath, str] = field(default_factory=dict)
    """The flag of a command that gave a value, by the value's path; not in the text."""

    @classmethod
    def read(cls, path: Path) -> "Document":
        """Read a file; NotFoundError if there is no file, SpecError if it is not TOML."""
        return cls.parse(read_text(path), str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> "Document":
        """Parse a text; complaints name it `source`. SpecError if it is not TOML."""
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
        """The place of a key and its value, or of the nearest table or array around them."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(WHOLE_TEXT, WHOLE_TEXT))

    def flag(self, path: KeyPath) -> str | None:
        """The flag that gave the value at a path, or all values below it; None for the text."""
        for at, flag in self.flags.items():
            if path[: len(at)] == at or (at[: len(path)] == path and path not in self.places):
                return flag
        return None

    def render(self, complaint: Complaint) -> str:
        """The complaint as a compiler would print it: address, sentence, line and caret."""
        if complaint.is_rendered:
            return complaint.message
        message = _in_short(complaint.message)
        if complaint.offset == WHOLE_TEXT:
            return f"{self.source}:1:1: {message}"
        start = self.text.rfind("\n", 0, complaint.offset) + 1
        line, _, _ = self.text[start:].partition("\n")
        row, column = self.text.count("\n", 0, start), complaint.offset - start
        address = f"{self.source}:{row + 1}:{column + 1}"
        return f"{address}: {message}\n{_point_at(line, column)}"

    def refuse(self, complaints: Iterable[Complaint]) -> None:
        """Raise one SpecError with all complaints in the order of the text, if there are any."""
        if complaints := sorted(complaints):
            shown = [self.render(complaint) for complaint in complaints[:MAX_COMPLAINTS]]
            more = [f"{self.source}: {AND_MORE}"] if complaints[MAX_COMPLAINTS:] else []
            raise SpecError([*shown, *more])


def read_text(path: Path) -> str:
    """The text of a file in UTF-8.

    NotFoundError if there is no file, SpecError if it is too large or cannot be read.
    """
    try:
        content = _read_at_once(path)
    except (FileNotFoundError, NotADirectoryError):
        advice = _near(path)
        raise NotFoundError(f"{path}: no such file{advice and f'; {advice}'}") from None
    except IsADirectoryError:
        raise SpecError([f"{path}: cannot be read: is a directory; expected a file"]) from None
    except OSError as problem:
        reason = (problem.strerror or type(problem).__name__).lower()
        raise SpecError([f"{path}: cannot be read: {reason}"]) from None
    if len(content) > MAX_BYTES:
        raise SpecError([f"{path}: {TOO_LARGE}"])
    return _decode(content, str(path))


def _near(path: Path) -> str:
    """A document of a similar name, or the folder that is missing; empty if there is neither."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    near = closest(path.stem, {place.stem for place in path.parent.glob("*.toml")})
    return f"did you mean '{path.with_name(near)}.toml'?" if near else ""


def _read_at_once(path: Path) -> bytes:
    """Up to MAX_BYTES + 1 bytes of a file; OSError for pipes and devices, which could block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(MAX_BYTES + 1)


def _in_short(message: str) -> str:
    """A message in one line of printable characters; the middle of a long message is left out."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} … {message[-MAX_MESSAGE // 2 :]}"
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in message)


def _decode(content: bytes, source: str) -> str:
    """Decode UTF-8, with or without a byte order mark."""
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
    """The line, cropped if it is long, and a caret below it that tabs do not shift."""
    first = max(0, min(column - _WIDEST_LINE // 2, len(line) - _WIDEST_LINE))
    last = first + _WIDEST_LINE
    shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line[first:last])
    margin = "".join("\t" if c == "\t" else " " for c in shown[: column - first])
    if first > 0:
        shown = f"…{shown[1:]}"
    if last < len(line):
        shown = f"{shown[:-1]}…"
    return f"    {shown}\n    {margin}^"
