"""Columns of tables, each declared once: title, value, importance, name in JSON."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar  # Any: values as JSON has them

from vmcjob.cli.text import Cell, Heading

RowT = TypeVar("RowT")
NOTHING = "-"
"""The content of an empty cell for programs."""
_GAPS = re.compile(r"(?<=[^\s│]) {2,}")
"""Two spaces or more are between columns, and in no cell but the branches of a tree."""


@dataclass(frozen=True)
class TableColumn(Generic[RowT]):
    """A column for people and for programs.

    Attributes:
        title: heading in the table for people; None if it is not shown there.
        value: content of a cell.
        align, dispensable: see `Heading`.
        names: attributes of a row with which JSON shows it.
        is_useful: whether the column is worth showing for these rows.
    """

    title: str = ""
    value: Callable[[RowT], Cell | str] = lambda row: ""
    align: Literal["left", "right", "point", "note"] = "left"
    dispensable: int = 0
    names: tuple[str, ...] = ()
    is_useful: Callable[[Sequence[RowT]], bool] = lambda rows: True


def make_table(
    columns: Sequence[TableColumn[RowT]], rows: Sequence[RowT]
) -> tuple[list[Heading], list[list[Cell]]]:
    """The table for people; columns without information are empty, and so are not drawn."""
    shown = [column for column in columns if column.title]
    useful = [column.is_useful(rows) for column in shown]
    cells = [
        [_cell(column.value(row)) if is_useful else Cell("") for column, is_useful in pairs]
        for row in rows
        for pairs in [list(zip(shown, useful, strict=True))]
    ]
    return _headings(shown), cells


def make_fixed_table(
    columns: Sequence[TableColumn[RowT]], rows: Sequence[RowT]
) -> tuple[list[Heading], list[list[Cell]]]:
    """The table for programs that split lines at two spaces or more.

    All columns are there for all rows. An empty cell holds a dash.
    """
    shown = [column for column in columns if column.title]
    return _headings(shown), [[_fixed(column.value(row)) for column in shown] for row in rows]


def make_document(columns: Sequence[TableColumn[RowT]], row: RowT) -> Mapping[str, Any]:
    """The row as JSON, for programs."""
    return {name: getattr(row, name) for column in columns for name in column.names}


def _headings(columns: Sequence[TableColumn[RowT]]) -> list[Heading]:
    return [Heading(one.title, one.align, dispensable=one.dispensable) for one in columns]


def _cell(value: Cell | str) -> Cell:
    return Cell(value) if isinstance(value, str) else value


def _fixed(value: Cell | str) -> Cell:
    """A cell that is never empty, and in which no two spaces follow each other."""
    cell = _cell(value)
    return Cell(_GAPS.sub(" ", cell.text) if cell.text.strip() else NOTHING, cell.style)
