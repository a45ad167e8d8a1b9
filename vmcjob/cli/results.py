"""From finished runs to energies: aggregate."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.columns import make_table
from vmcjob.cli.energies import (
    Difference,
    Energies,
    Unbalanced,
    add_up,
    make_energies,
    read_reactions,
)
from vmcjob.cli.energytable import sum_columns, table_columns
from vmcjob.cli.expand import expand_options
from vmcjob.cli.explain import explain_row, explanation_document, explanation_text
from vmcjob.cli.geometries import ShownPath, document_of, paths_of, show_paths
from vmcjob.cli.hints import after_energies, curve_of, resume_rows, suggest, where_runs_are
from vmcjob.cli.observables import read_observations, show_observations
from vmcjob.cli.options import (
    AnySelectors,
    AsJson,
    RunsRoot,
    SiteProfile,
    select_runs,
    the_only_run,
)
from vmcjob.cli.screen import n_columns, put, put_json, put_table, say
from vmcjob.cli.tablefile import STDOUT, require_writable, write_table
from vmcjob.cli.text import GAP, count, wrap
from vmcjob.cli.usage import RunUse, read_use, show_use
from vmcjob.errors import IncompleteError, NotFoundError, UsageError
from vmcjob.results.units import EnergyUnit

if TYPE_CHECKING:
    from vmcjob.results.explain import RowTrace
    from vmcjob.results.observed import Observation
    from vmcjob.results.table import Table
    from vmcjob.rundir import RunDir

Unit = Annotated[
    EnergyUnit, typer.Option("--unit", help="Of the table shown; JSON and CSV stay in hartree.")
]
Sums = Annotated[
    list[str] | None,
    typer.Option("--diff", metavar="SUM", help='Energies added up too, like "2*h - h2".'),
]
WithObservables = Annotated[
    bool, typer.Option("--observables", help="Show what else was measured, too.")
]
WithUse = Annotated[
    bool, typer.Option("--usage", help="Show memory, CPUs, GPUs and time used of those asked for.")
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="KEY", help='Rows apart by "seed", or by a key of sweep or spec.'),
]
Explained = Annotated[
    str | None,
    typer.Option("--explain", metavar="RUN", help="Show how the energy of its row came about."),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        metavar="N",
        help="Read stores in so many. Default: half the cores, up to 8.",
    ),
]
OneSlope = Annotated[
    bool, typer.Option("--one-slope", help="Extrapolate all runs of a sweep by one slope.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write a table too: CSV, .parquet or .nc; - for CSV on standard output alone.",
    ),
]


Xyz = Annotated[
    Path | None,
    typer.Option(
        "--xyz", metavar="FILE", help="Write the last geometry of a relaxation, in angstrom."
    ),
]


@dataclass(frozen=True)
class TableOptions:
    """What is to be in the table, and beside it."""

    sums: Sums = None
    with_observables: WithObservables = False
    with_use: WithUse = False
    by: By = None
    explained: Explained = None
    processes: Processes = None
    one_slope: OneSlope = False
    unbalanced: Unbalanced = False
    xyz: Xyz = None


@app.command(cls=Command)
@expand_options
def aggregate(
    options: TableOptions,
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    as_json: AsJson = False,
    output: Output = None,
    unit: Unit = "hartree",
) -> None:
    """Turn finished runs into energies with error bars, in hartree.

    Ends with exit code 3 when a run had to be left out or an energy is not converged.
    """
    _require_one_output(output, options, as_json)
    chosen = select_runs(selectors, site, runs)
    reactions = read_reactions("--diff", options.sums or [], chosen)
    named = {one: select_runs([one], site, runs) for one in [options.explained] if one is not None}
    require_writable(output, chosen)
    paths = paths_of(chosen, options.xyz)
    energies = make_energies(chosen, options.by, options.processes, one_slope=options.one_slope)
    table, found, _ = energies
    if named:
        _explain(explain_row(_find_run(named, table), energies), as_json)
        return
    differences = add_up("--diff", reactions, energies, unbalanced=options.unbalanced)
    measured = read_observations(table, found) if options.with_observables else []
    use = read_use(chosen) if options.with_use else []
    if as_json:
        put_json(table.to_json() | _further(options, differences, measured, use, paths))
    elif output == STDOUT:
        put(table.to_csv().rstrip("\n"))
    else:
        _show(table, unit, differences)
        show_observations(measured)
        show_paths(paths)
        show_use(use)
    for run_id, reason in () if as_json else (*table.excluded, *table.contained):
        say(f"left out: {run_id}  {reason}", "dim")
    if output not in (None, STDOUT):
        write_table(output, table)
    if not chosen:
        raise NotFoundError("there is nothing to aggregate")
    _end(energies, None if as_json else (selectors or (), where_runs_are(site, runs)))


def _end(energies: Energies, where: tuple[Sequence[str], str] | None) -> None:
    """Print the commands that follow; IncompleteError if a run or a row is not as it should be.

    `where`: the selectors and options that lead to the runs; None to print no commands.
    """
    table, _, errors = energies
    is_whole = not errors and not table.excluded and all(row.converged for row in table.rows)
    if where is not None:
        curve = curve_of([row.point for row in table.rows], *where)
        better = resume_rows(table, *where)
        suggest(*better, *curve, *(after_energies(*where) if is_whole else ()))
    if not is_whole:
        raise IncompleteError("\n".join([*map(str, errors), _summary(table)]))


def _further(
    options: TableOptions,
    differences: "Sequence[Difference]",
    measured: "Sequence[Observation]",
    use: Sequence[RunUse],
    paths: Sequence[ShownPath],
) -> dict[str, Any]:  # a JSON document
    """The parts of the JSON document that options ask for, and relaxations if there are some."""
    more: dict[str, Any] = {"differences": differences} if options.sums else {}
    if options.with_observables:
        more["observables"] = [one.to_json() for one in measured]
    if options.with_use:
        more["usage"] = [one.to_json() for one in use]
    if paths:
        more["relaxations"] = [document_of(*one) for one in paths]
    return more


def _require_one_output(output: Path | None, options: TableOptions, as_json: bool) -> None:
    """Raise UsageError if two options exclude each other."""
    explained = options.explained
    if output == STDOUT and as_json:
        raise UsageError("-o - and --json both want standard output; choose one")
    if output is not None and explained is not None:
        raise UsageError("-o writes the table, and --explain shows one row; choose one")
    if options.with_use and (output == STDOUT or explained is not None):
        other = "--explain shows one row" if explained is not None else "-o - is for CSV alone"
        raise UsageError(f"--usage shows a second table, and {other}; choose one")


def _find_run(named: "dict[str, list[RunDir]]", table: "Table") -> "RunDir":
    """The only run of a selector that has a row; UsageError for several.

    If none of the runs has a row, each of them counts.
    """
    run_ids = {run_id for row in table.rows for run_id in row.run_ids}
    ((selector, found),) = named.items()
    return the_only_run(selector, [run for run in found if run.path.name in run_ids] or found)


def _explain(trace: "RowTrace", as_json: bool) -> None:
    if as_json:
        put_json(explanation_document(trace))
    else:
        put(explanation_text(trace))
    if trace.verdict != "converged":
        raise IncompleteError(f"{trace.name}: {trace.verdict}")


def _show(table: "Table", unit: EnergyUnit, differences: "Sequence[Difference]") -> None:
    """The tables for people: of rows, and of what was asked to be added up.

    On a terminal, notes stand below in full: each names a command, which no width may cut off.
    """
    if table.rows:
        width = n_columns()
        columns = table_columns(unit, table.rows)
        kept = [one for one in columns if width is None or one.title != "note"]
        put_table(*make_table(kept, table.rows))
        for row in table.rows:
            if row.why and width is not None:  # a command for several rows stands below, once
                why = row.why.rpartition("; vmcjob resume ")[0] if row.resume_with else row.why
                put(wrap(f"{row.name}: {why}", width, len(GAP)))
    if differences:
        put("")
        put_table(*make_table(sum_columns(unit), differences))


def _summary(table: "Table") -> str:
    """Why the exit code is not 0."""
    n_open = sum(not row.converged for row in table.rows)
    parts = [f"{count(n_open, 'row')} not converged"] if n_open else []
    if table.excluded:
        parts.append(f"{count(len(table.excluded), 'run')} left out")
    return ", ".join(parts) or "not all runs could be read"
