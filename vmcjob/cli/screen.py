"""Output: data to standard output, messages to standard error, adapted to each stream."""

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import TextIO

import typer

from vmcjob.cli.text import GAP, Cell, Heading, make_visible, paint, render_table, wrap


class When(StrEnum):
    """When output has colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


_chosen = When.AUTO


def choose_colour(when: When) -> None:
    """Choose when the output of this process has colours."""
    global _chosen
    _chosen = when


def _echo(text: str, *, is_talk: bool = False, is_line: bool = True) -> None:
    """Print; colours stay in a pipe if they were asked for."""
    typer.echo(text, err=is_talk, nl=is_line, color=True if _chosen is When.ALWAYS else None)


def put(text: str) -> None:
    """Print data; control characters are made visible, also in a pipe."""
    typer.echo(make_visible(text))


def put_drawn(text: str, *, is_talk: bool = False, is_line: bool = True) -> None:
    """Print the program's own text with colours and cursor moves."""
    _echo(text, is_talk=is_talk, is_line=is_line)


def put_json(document: object, *, is_compact: bool = False) -> None:
    """Print JSON; a number that is not finite becomes null."""
    indent = None if is_compact else 2
    typer.echo(json.dumps(_finite(document), indent=indent, allow_nan=False, default=str))


def put_table(columns: list[Heading], rows: list[list[Cell]]) -> None:
    """Print a table as wide as the terminal; in a file, as wide as needed."""
    _echo(draw_table(columns, rows))


def draw_table(columns: list[Heading], rows: list[list[Cell]]) -> str:
    """The text of a table for standard output."""
    return render_table(columns, rows, width=n_columns(), is_coloured=shows_colour(sys.stdout))


def n_columns() -> int | None:
    """The width of the terminal of standard output; None for a file, which gets everything."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def say(text: str, style: str = "") -> None:
    """Print a message for people, beside the data."""
    text = make_visible(text)
    _echo(paint(text, style) if shows_colour(sys.stderr) else text, is_talk=True)


def fold(text: str, stream: TextIO | None) -> str:
    """The text in lines that a terminal has room for; unchanged for a file."""
    if not is_terminal(stream):
        return text
    return wrap(text, shutil.get_terminal_size().columns, len(GAP))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; a closed stream (None) is not."""
    return stream is not None and stream.isatty()


def can_redraw(stream: TextIO | None) -> bool:
    """Whether the cursor can be moved."""
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def shows_colour(stream: TextIO | None) -> bool:
    """Whether to use colours: as chosen, else on a capable terminal, unless NO_COLOR is set."""
    if _chosen is not When.AUTO:
        return _chosen is When.ALWAYS
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def _finite(value: object) -> object:
    """The document with null for every number that is not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def forgive_encodings() -> None:
    """Let a terminal without Unicode show '?' instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
