"""The positions of all keys and values in a TOML text, which TOML parsers do not report.

The text has already passed a real parser. So the scanner only finds where keys, strings and arrays
end, and leaves their values to the parser.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import tomli

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path of a value: ``("system", "atoms", 1, 0)`` is ``system.atoms[1][0]``."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
# If a closing quote is missing, the key or the string extends to the end of the text.
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
    """Offsets of a key and its value in the text; for an array's element, both are the value's."""

    key: int
    value: int


class Definition(NamedTuple):
    """A key with its place, and its earlier place if the key is given twice."""

    path: KeyPath
    place: Place
    earlier: Place | None


class Scan:
    """A cursor that has read a text, with the places of all keys and values before it.

    The text may end anywhere, as long as it is valid up to its end.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.places: dict[KeyPath, Place] = {}
        """Places of all keys and values of the text."""
        self.last: Definition | None = None
        self.last_value = 0
        """Offset of the last value that was begun."""
        self.open_brackets: list[int] = []
        """Offsets of the brackets that are still open, from the outside in."""
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
        """Read ``[a.b]`` or ``[[a.b]]`` and return the path of the table that it opens."""
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
        """Read a key, dotted or not; return its path and the offset of its last part."""
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
        """The path, extended by the index of the newest table if it names an array of tables."""
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
        """Read brackets and their content: yield at every element, end behind the last bracket."""
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
        """The next character; empty at the end of the text."""
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> str:
        """Read and return the text that the pattern matches here; may be empty."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()


def _unquote(key: str) -> str:
    try:
        return next(iter(tomli.loads(f"{key} = 0"))) if key[:1] in ("'", '"') else key
    except tomli.TOMLDecodeError:  # the closing quote is missing
        return key
