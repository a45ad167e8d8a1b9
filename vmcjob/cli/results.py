"""From finished runs to energies: aggregate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.columns import TableColumn, in_millihartree, make_table
from vmcjob.cli.energies import make_energies
from vmcjob.cli.options import AnySelectors, AsJson, RunsRoot, SiteProfile, select_runs
from vmcjob.cli.screen import put, put_json, put_table, say
from vmcjob.cli.tablefile import STDOUT, require_writable, write_table
from vmcjob.cli.text import Cell, count, format_energy
from vmcjob.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from vmcjob.aggregate import Row, Table


def _miss(row: "Row") -> str:
    """Energy minus reference, in millihartree, with its error."""
    return "" if row.reference is None else in_millihartree(row.energy - row.reference, row.error)


def _correlation(row: "Row") -> str:
    """Energy minus that of Hartree-Fock, in millihartree, with its error."""
    before = row.hartree_fock
    return "" if before is None else in_millihartree(row.energy - before, row.error)


def _verdict(row: "Row") -> Cell:
    """In a word: a state that its own numbers speak against is no matter of patience."""
    if row.findings:
        return Cell("suspect", "red")
    return Cell("converged", "green") if row.converged else Cell("not yet", "yellow")


COLUMNS: "list[TableColumn[Row]]" = [  # for people; JSON and CSV have the fields of a row
    TableColumn("name", lambda row: row.name),
    TableColumn("energy", lambda row: format_energy(row.energy, row.error), "point"),
    TableColumn("off by mHa", _miss, "point", rank=2),
    TableColumn("E - HF, mHa", _correlation, "point", rank=3),
    TableColumn("runs", lambda row: str(row.runs), "right", rank=3),
    TableColumn("steps", lambda row: str(row.n_steps), "right", rank=4),
    TableColumn("variance", lambda row: f"{row.variance:.3g}", "right", rank=5),
    TableColumn("tau", lambda row: f"{row.tau:.1f}", "right", rank=6),
    TableColumn("n_eff", lambda row: f"{row.n_eff:.0f}", "right", rank=2),
    TableColumn("verdict", _verdict),
    TableColumn("note", lambda row: Cell(row.why, "dim"), "note", rank=1),
]


@app.command(cls=Command)
def aggregate(
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="CSV", help="Write a table too; - for standard output alone."
        ),
    ] = None,
) -> None:
    """Turn finished runs into energies with error bars, in hartree.

    Ends with exit code 3 when a run had to be left out or an energy is not converged.
    """
    if output == STDOUT and as_json:
        raise UsageError("-o - and --json both want standard output; choose one")
    chosen = select_runs(selectors, site, runs)
    if output is not None:
        require_writable(output, chosen)
    table, _, errors = make_energies(chosen)
    if as_json:
        put_json(table.to_json())
    elif output == STDOUT:
        put(table.to_csv().rstrip("\n"))
    else:
        _show(table)
    for run_id, reason in () if as_json else (*table.excluded, *table.contained):
        say(f"left out: {run_id}  {reason}", "dim")
    if output not in (None, STDOUT):
        write_table(output, table.to_csv())
    if errors or table.excluded or not all(row.converged for row in table.rows):
        raise IncompleteError("\n".join([*map(str, errors), _summary(table)]))


def _show(table: "Table") -> None:
    """The table for people."""
    if table.rows:
        put_table(*make_table(COLUMNS, table.rows))


def _summary(table: "Table") -> str:
    """Why the exit code is not 0."""
    n_open = sum(not row.converged for row in table.rows)
    parts = [f"{count(n_open, 'row')} not converged"] if n_open else []
    if table.excluded:
        parts.append(f"{count(len(table.excluded), 'run')} left out")
    return ", ".join(parts) or "not all runs could be read"
