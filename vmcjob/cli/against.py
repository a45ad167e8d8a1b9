"""The option `show --against`: the keys in which the specs of two runs differ."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vmcjob.cli.options import row_name
from vmcjob.cli.preview import spec_values
from vmcjob.cli.screen import put_json, put_table, say
from vmcjob.cli.text import Cell, Heading

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir

UNSET = "unset"


def show_against(run: "RunDir", other: "RunDir", *, as_json: bool) -> None:
    """Print the differing keys of two resolved specs, with both values."""
    first, second = _values(run), _values(other)
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    names = run.path.name, other.path.name
    if as_json:
        differing = {key: [first.get(key), second.get(key)] for key in keys}
        put_json({"schema_version": 1, "runs": names, "differing": differing})
        return
    if not keys:
        say(f"{names[0]} and {names[1]} have equal specs")
        return
    rows = row_name(run), row_name(other)
    titles = names if rows[0] == rows[1] else rows
    columns = [Heading("key"), *map(Heading, titles)]
    cells = ([key, first.get(key, UNSET), second.get(key, UNSET)] for key in keys)
    put_table(columns, [[*map(Cell, row)] for row in cells])


def _values(run: "RunDir") -> Mapping[str, str]:
    """The keys of a run's spec with their values as TOML; keys added since have values too."""
    from vmcjob.spec import dump_spec, load_resolved

    return spec_values(dump_spec(load_resolved(run.read_spec_text(), str(run.spec_path))))
