"""Observables of runs, for people and for programs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmcjob.cli.columns import TableColumn, make_table
from vmcjob.cli.screen import put, put_table, say
from vmcjob.cli.text import Cell, format_energy

if TYPE_CHECKING:
    from vmcjob.observables import Quantity
    from vmcjob.results.observed import Observation
    from vmcjob.results.table import Table
    from vmcjob.runs.status import RunStatus
    from vmcjob.stats import Estimate


class ObservationLine(NamedTuple):
    """A measured number, as a line of a table."""

    observation: "Observation"
    name: str
    estimate: "Estimate"


COLUMNS: "list[TableColumn[ObservationLine]]" = [
    TableColumn("name", lambda line: line.observation.row),
    TableColumn("observable", lambda line: line.name),
    TableColumn(
        "value", lambda line: format_energy(line.estimate.mean, line.estimate.error), "point"
    ),
    TableColumn("unit", lambda line: line.observation.quantity.units),
    TableColumn("n_eff", lambda line: f"{line.estimate.n_eff:.0f}", "right", dispensable=2),
    TableColumn(
        "what", lambda line: Cell(line.observation.quantity.long_name, "dim"), "note", dispensable=1
    ),
]


def read_observations(table: "Table", runs: "Mapping[str, RunStatus]") -> "list[Observation]":
    """The observables of the runs of each row."""
    from vmcjob.results.observed import observe

    found = []
    for row in table.rows:
        found += observe(row.name, [runs[run_id].run.store_path for run_id in row.run_ids])
    return found


def show_observations(measured: "Sequence[Observation]") -> None:
    """Print a line for each number and each element of a small array; larger ones need --json."""
    if not measured:
        return
    from vmcjob.results.observed import MAX_SHOWN

    if lines := lines_of(measured):
        put("")
        put_table(*make_table(COLUMNS, lines))
    if large := [one for one in measured if len(one.quantity.estimates) > MAX_SHOWN]:
        names = ", ".join(dict.fromkeys(one.name for one in large))
        say(f"too large for a table, in --json: {names}", "dim")


def lines_of(measured: "Sequence[Observation]") -> list[ObservationLine]:
    """A line for each number and each element of a small array."""
    from vmcjob.results.observed import MAX_SHOWN

    small = [one for one in measured if len(one.quantity.estimates) <= MAX_SHOWN]
    return [ObservationLine(one, *element) for one in small for element in one.elements()]


def say_numbers(quantities: "Mapping[str, Quantity]") -> list[str]:
    """Return the lines of one run, as text in a picture."""
    from vmcjob.results.observed import Observation

    lines = lines_of([Observation("", name, one) for name, one in quantities.items()])
    words = (
        f"{_in_words(line)} = {format_energy(line.estimate.mean, line.estimate.error)}"
        f" {line.observation.quantity.units}"
        for line in lines
    )
    return [text.removesuffix(" 1") for text in words]


def _in_words(line: ObservationLine) -> str:
    """What was measured, in words, with the place in its array; its name where it has no words."""
    words = line.observation.quantity.long_name
    return words + line.name.removeprefix(line.observation.name) if words else line.name
