"""Where text goes: data to standard output, talk to standard error, each as it can show it."""

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

import typer

from vmcjob.cli.text import Cell, Column, make_visible, paint, render_table


def put(text: str) -> None:
    """Data: what a pipe wants to read, whoever wrote it, with control characters made visible."""
    typer.echo(make_visible(text))


def put_drawn(text: str, *, is_talk: bool = False, is_line: bool = True) -> None:
    """Text of our own making, with colours and moves of the cursor."""
    typer.echo(text, err=is_talk, nl=is_line)


def put_json(document: object, *, is_compact: bool = False) -> None:
    """Data for programs; a number that is not finite becomes null, as JSON demands."""
    indent = None if is_compact else 2
    typer.echo(json.dumps(_finite(document), indent=indent, allow_nan=False, default=str))


def put_table(columns: list[Column], rows: list[list[Cell]]) -> None:
    """A table as wide as the terminal, or as wide as it likes in a file."""
    typer.echo(draw_table(columns, rows))


def draw_table(columns: list[Column], rows: list[list[Cell]]) -> str:
    """The text of a table for standard output."""
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    return render_table(columns, rows, width=width, is_coloured=shows_colour(sys.stdout))


def say(text: str, style: str = "") -> None:
    """Talk: what a person wants to read beside the data."""
    text = make_visible(text)
    typer.echo(paint(text, style) if shows_colour(sys.stderr) else text, err=True)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is looking; a closed stream is None."""
    return stream is not None and stream.isatty()


def can_redraw(stream: TextIO | None) -> bool:
    """Whether the cursor can be moved."""
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def shows_colour(stream: TextIO | None) -> bool:
    """Whether to colour: on a terminal that can, unless the user set NO_COLOR."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def _finite(value: object) -> object:
    """The document with null for every number that is not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def forgive_encodings() -> None:
    """Let a terminal without Unicode show '?' where another would make the command fail."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
