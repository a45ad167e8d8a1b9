"""Formatting of numbers and tables: pure functions from values to text."""

import math
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vmcjob.results.units import format_energy as format_energy

GAP = "  "
NOTE_WIDTH = 12  # a note that could show less is not worth its column
READABLE_WIDTH = 30  # columns of less worth than a note give way until it shows so much
RESET = "\x1b[0m"
STYLES = {
    "": "",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "cyan": "\x1b[36m",
}


def format_duration(seconds: float | None) -> str:
    """A length of time in its two largest units: 8 s, 4 min 10 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    whole = max(0, round(seconds))
    for name, length, lower_name, lower in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= length:
            rest = whole % length // lower
            return f"{whole // length} {name}" + (f" {rest} {lower_name}" if rest else "")
    return f"{whole} s"


def format_size(n_bytes: float) -> str:
    """An amount of bytes: 0 B, 512 B, 1.5 MB, 20 GB; 1000 of one are one of the next."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def format_time(seconds: object) -> str:
    """A time on this machine's clock: 2026-11-21 17:13:40; empty for other values."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(seconds))))
    except (ValueError, OverflowError, OSError):
        return ""


def format_point(point: Mapping[str, object]) -> str:
    """The coordinates of a sweep: R=1.4 damping=0.001."""
    return " ".join(f"{key}={value}" for key, value in point.items())


def align_facts(facts: Mapping[str, str], n_columns: int | None = None) -> str:
    """One line per known fact: its name, then its value in an aligned column.

    With `n_columns`, a longer value goes on in further lines of its column.
    """
    known = {name: value for name, value in facts.items() if value}
    width = max(map(len, known), default=0)
    if n_columns is not None:
        known = {name: wrap(value, n_columns, width + len(GAP)) for name, value in known.items()}
    return "\n".join(f"{name:<{width}}{GAP}{value}" for name, value in known.items())


def wrap(text: str, n_columns: int, indent: int) -> str:
    """A text in lines of a column that begins at `indent`; no word is broken."""
    room = max(n_columns - indent, NOTE_WIDTH)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines)


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 run, 3 runs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def relative(path: Path) -> str:
    """A path as short as it can be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@dataclass(frozen=True)
class Cell:
    """A text and the name of its style."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Heading:
    """Title and alignment of a column; on a narrow terminal, `dispensable` ones go first.

    The largest number goes first; columns with 0 always stay. A `note` is the last column and is
    cut to the remaining width.
    """

    title: str
    align: Literal["left", "right", "point", "note"] = "left"
    dispensable: int = 0


def render_table(
    columns: Sequence[Heading],
    rows: Sequence[Sequence[Cell]],
    *,
    width: int | None,
    is_coloured: bool,
) -> str:
    """Aligned columns under a line of titles; columns without content are left out.

    `width` is the terminal's; None for a file, which gets everything.
    """
    lines = [[Cell(column.title, "dim") for column in columns], *rows]
    texts = [
        _align(column, [in_one_line(line[n].text) for line in lines])
        for n, column in enumerate(columns)
    ]
    shown = _choose_columns(columns, texts, width)
    return "\n".join(
        _render_line([Cell(texts[n][at], line[n].style) for n in shown], width, is_coloured)
        for at, line in enumerate(lines)
    )


def paint(text: str, style: str) -> str:
    """The text in a style, as terminals want it."""
    return f"{STYLES[style]}{text}{RESET}" if STYLES[style] and text else text


def make_visible(text: str) -> str:
    """A text with control and bidirectional characters escaped: \\x1b, \\u202e."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else _escape(letter) for letter in text
    )


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def in_one_line(text: str) -> str:
    """The first line of a text, without control characters; a single line keeps its indent."""
    if text.isprintable():
        return text
    first = text.lstrip().partition("\n")[0]
    return "".join(letter if letter.isprintable() else "?" for letter in first)


def _align(column: Heading, texts: list[str]) -> list[str]:
    """Title and texts of one column at equal width; a note keeps its own."""
    if column.align == "note":
        return texts
    if column.align == "point":
        left = max((len(text.partition(".")[0]) for text in texts[1:]), default=0)
        texts[1:] = [" " * (left - len(text.partition(".")[0])) + text for text in texts[1:]]
    size = max(map(len, texts))
    return [text.rjust(size) if column.align == "right" else text.ljust(size) for text in texts]


def _choose_columns(
    columns: Sequence[Heading], texts: Sequence[list[str]], width: int | None
) -> list[int]:
    """The columns with content, without the least important ones if the width is small."""
    shown = [n for n, (_, *cells) in enumerate(texts) if not cells or any(map(str.strip, cells))]

    def is_too_wide(note_width: int) -> bool:
        needs = [
            min(note_width, max(map(len, texts[n])))
            if columns[n].align == "note"
            else len(texts[n][0])
            for n in shown
        ]
        return width is not None and sum(needs) + len(GAP) * (len(needs) - 1) > width

    worth = next((columns[n].dispensable for n in shown if columns[n].align == "note"), 0)
    for note_width, least in ((READABLE_WIDTH, worth), (NOTE_WIDTH, 0)):
        while is_too_wide(note_width):
            last = max(shown, key=lambda n: columns[n].dispensable)
            if columns[last].dispensable <= least:
                break
            shown.remove(last)
    return shown


def _render_line(cells: list[Cell], width: int | None, is_coloured: bool) -> str:
    """One line, with the last cell cut at the terminal's width."""
    *first, last = cells
    used = sum(len(cell.text) + len(GAP) for cell in first)
    text = last.text.rstrip()
    if width is not None and 3 < width - used < len(text):
        text = text[: width - used - 3] + "..."
    line = [*first, Cell(text, last.style)]
    return GAP.join(paint(c.text, c.style) if is_coloured else c.text for c in line).rstrip()
