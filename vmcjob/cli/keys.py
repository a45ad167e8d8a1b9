"""The command `keys`: the keys of a spec with default, accepted values and meaning."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.complete import complete_keys
from vmcjob.cli.options import AsJson
from vmcjob.cli.screen import is_terminal, put, put_json, put_table
from vmcjob.cli.text import Cell, Heading
from vmcjob.errors import UsageError

if TYPE_CHECKING:
    from vmcjob.document import Key

INDENT = "    "
MIN_WIDTH = 20

COLUMNS = [
    Heading("key"),
    Heading("of kind", dispensable=2),
    Heading("default"),
    Heading("expected", dispensable=1),
    Heading("meaning"),
]

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="A table, a key like sampler.walkers, or a word of its meaning. [default: all]",
        autocompletion=complete_keys,
    ),
]


class KeyRow(NamedTuple):
    """One key of a spec, in words."""

    key: str
    kind: str  # the `kind` of its table; empty if there is only one
    default: str  # as TOML; empty without a default
    expected: str
    meaning: str


@app.command(cls=Command)
def keys(names: Names = None, as_json: AsJson = False) -> None:
    """List the keys of a spec: default, accepted values, meaning."""
    rows = _chosen(list(spec_keys()), names or [])
    if as_json:
        put_json([row._asdict() for row in rows])
        return
    if is_terminal(sys.stdout):
        put("\n".join(describe_keys(rows, shutil.get_terminal_size().columns)))
    else:
        put_table(COLUMNS, [[Cell(text) for text in row] for row in rows])


def describe_keys(rows: Sequence[KeyRow], width: int) -> Iterator[str]:
    """Lines for a terminal: each key with its default, and its meaning in whole below."""
    for row in rows:
        is_given = f" = {row.default}" if row.default else ""
        kind = f"  (kind {row.kind})" if row.kind else ""
        yield f"{row.key}{is_given}{kind}"
        words = "; ".join(part for part in (row.meaning, row.expected) if part)
        yield from textwrap.wrap(
            words,
            max(width, MIN_WIDTH),
            initial_indent=INDENT,
            subsequent_indent=INDENT,
            break_on_hyphens=False,
        )


def spec_keys() -> Iterator[KeyRow]:
    """All keys, table by table, in the order of a spec."""
    from vmcjob.document import keys_of
    from vmcjob.spec import JobSpec, Variations

    yield from _rows(keys_of(JobSpec) | keys_of(Variations))


def site_keys() -> Iterator[KeyRow]:
    """All keys of a site profile, table by table."""
    from vmcjob.document import keys_of
    from vmcjob.site import Site

    yield from _rows(keys_of(Site))


def _rows(of_document: Mapping[str, "Key"]) -> Iterator[KeyRow]:
    from vmcjob.document import keys_of, variants_of

    for name, key in of_document.items():
        if not key.is_table:
            yield _row(name, "", key)
            continue
        tables = variants_of(key.kind.type) or {"": key.kind.type}
        for kind, table in tables.items():
            for own, of_table in keys_of(table).items():
                yield _row(f"{name}.{own}", kind, of_table)


def _row(name: str, kind: str, key: "Key") -> KeyRow:
    from vmcjob.document import expected

    return KeyRow(name, kind, _default(key), expected(key.kind), key.kind.meaning)


def _default(key: "Key") -> str:
    """The default as TOML; empty for None, whose effect `meaning` explains."""
    from vmcjob.document import format_value

    is_plain = isinstance(key.default, str | int | float | tuple)
    if not is_plain or not all(rule.holds(key.default) for rule in key.kind.rules):
        return ""
    return format_value(key.default)


def _says(row: KeyRow, word: str) -> bool:
    """Whether a word is the last part of a key, or stands in its meaning."""
    is_last = row.key.endswith(f".{word}")
    return is_last or re.search(rf"(?<!\w){re.escape(word)}(?!\w)", row.meaning) is not None


def _chosen(rows: Sequence[KeyRow], names: Sequence[str]) -> list[KeyRow]:
    """The rows of the named keys and of the named tables' keys; UsageError for other names."""
    from vmcjob.document import closest

    found: set[KeyRow] = set()
    for name in names:
        own = [row for row in rows if row.key == name or row.key.startswith(f"{name}.")]
        own = own or [row for row in rows if _says(row, name)]
        if not own:
            known = {row.key for row in rows} | {row.key.partition(".")[0] for row in rows}
            nearest = closest(name, known)
            hint = f"did you mean '{nearest}'?" if nearest else "vmcjob keys lists them all"
            raise UsageError(f"{name}: no table or key of a spec; {hint}")
        found.update(own)
    return [row for row in rows if row in found] if names else list(rows)
