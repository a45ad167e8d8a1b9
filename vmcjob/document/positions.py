"""Where every key and every value of a TOML text stands, which no TOML parser tells.

The text has passed a real parser before it comes here, so the scanner only has to find its way:
it knows where a key, a string or an array ends, and leaves all meaning to the parser.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import tomli

KeyPath: TypeAlias = tuple[str | int, ...]
"""The way to a value: ``("system", "atoms", 1, 0)`` is ``system.atoms[1][0]``."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
# Where a closing quote is missing, a key or a string takes the rest of the text.
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*(?:"|\\?\Z)|'[^']*(?:'|\Z)""")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""(?:"{0,2})|\\?\Z)'
    r"|'''.*?(?:'''(?:'{0,2})|\Z)"
    r'|"(?:\\.|[^"\\])*(?:"|\\?\Z)'
    r"|'[^']*(?:'|\Z)",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+|.", re.DOTALL)  # a date may contain a space


class Place(NamedTuple):
    """Offsets into the text; an element of an array has no key and stands at its value."""

    key: int
    value: int


class Definition(NamedTuple):
    """A key with its place, and with its earlier place if it is not the first."""

    path: KeyPath
    place: Place
    earlier: Place | None


class Scan:
    """A cursor that has gone through a text, and what it has passed.

    The text may also break off anywhere, as long as it is valid up to there.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.places: dict[KeyPath, Place] = {}
        """Where everything that the text defines stands."""
        self.last: Definition | None = None
        self.last_value = 0
        """Offset of the value that was begun last."""
        self.open_brackets: list[int] = []
        """Offsets of the brackets that have not been closed, from the outside in."""
        self.tables_in_array: dict[KeyPath, int] = {}
        self.document()

    def document(self) -> None:
        table: KeyPath = ()
        self.take(_BLANK)
        while self.at < len(self.text):
            if self.next == "[":
                table = self.header()
            else:
                self.pair(table)
            self.take(_BLANK)

    def header(self) -> KeyPath:
        """Pass ``[a.b]`` or ``[[a.b]]`` and return the path of the table that it opens."""
        bracket = self.at
        width = 2 if self.text.startswith("[[", bracket) else 1
        self.at += width
        table, start = self.key(())
        self.at += width
        if width == 2:
            index = self.tables_in_array.get(table, 0)
            self.tables_in_array[table] = index + 1
            self.places.setdefault(table, Place(start, bracket))
            table = (*table, index)
        self.define(table, Place(start, bracket))
        return table

    def key(self, table: KeyPath) -> tuple[KeyPath, int]:
        """Pass a key, dotted or not; return its path and the offset of its last part."""
        path = table
        while True:
            self.take(_SPACE)
            start = self.at
            path = (*self.newest(path), _unquote(self.take(_KEY)))
            self.take(_SPACE)
            if not self.text.startswith(".", self.at):
                return path, start
            self.places.setdefault(path, Place(start, start))
            self.at += 1

    def newest(self, path: KeyPath) -> KeyPath:
        """Where a path names an array of tables, step into its last table so far."""
        count = self.tables_in_array.get(path)
        return path if count is None else (*path, count - 1)

    def pair(self, table: KeyPath) -> None:
        path, start = self.key(table)
        self.at += 1  # the equals sign
        self.take(_SPACE)
        self.define(path, Place(start, self.at))
        self.value(path)

    def value(self, path: KeyPath) -> None:
        self.last_value = self.at
        if self.next == "[":
            for index, _ in enumerate(self.elements("]")):
                self.places[*path, index] = Place(self.at, self.at)
                self.value((*path, index))
        elif self.next == "{":
            for _ in self.elements("}"):
                self.pair(path)
        else:
            self.take(_STRING if self.next in "\"'" else _SCALAR)

    def elements(self, closing: str) -> Iterator[None]:
        """Pass an opening bracket, stop at every element, end behind the closing bracket."""
        self.open_brackets.append(self.at)
        self.at += 1
        self.take(_BLANK)
        while self.next not in ("", closing):
            yield
            self.take(_BLANK)
            if self.next == ",":
                self.at += 1
                self.take(_BLANK)
        if self.next:
            self.open_brackets.pop()
        self.at += 1

    def define(self, path: KeyPath, place: Place) -> None:
        self.last = Definition(path, place, self.places.get(path))
        self.places[path] = place

    @property
    def next(self) -> str:
        """The character here, or nothing at the end."""
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> str:
        """Pass what the pattern matches here, perhaps nothing, and return it."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()


def _unquote(key: str) -> str:
    try:
        return next(iter(tomli.loads(f"{key} = 0"))) if key[:1] in ("'", '"') else key
    except tomli.TOMLDecodeError:  # its closing quote is missing
        return key
