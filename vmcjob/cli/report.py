"""One page about some runs: report."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.columns import make_table
from vmcjob.cli.curve import draw_sweeps
from vmcjob.cli.energies import (
    Difference,
    Energies,
    Unbalanced,
    add_up,
    make_energies,
    read_reactions,
)
from vmcjob.cli.energytable import sum_columns, table_columns
from vmcjob.cli.explain import explanation_text
from vmcjob.cli.observables import COLUMNS, lines_of, read_observations, say_numbers
from vmcjob.cli.options import AnySelectors, RunsRoot, SiteProfile, select_runs
from vmcjob.cli.outfile import require_folder, write_output
from vmcjob.cli.plot import read_series, title_of
from vmcjob.cli.results import Sums
from vmcjob.cli.show import provenance_facts, run_facts
from vmcjob.cli.tablefile import refuse_folders_of_runs
from vmcjob.cli.text import Cell, Heading, format_time
from vmcjob.errors import IncompleteError, NotFoundError, UsageError, VmcJobError
from vmcjob.version import __version__

if TYPE_CHECKING:
    from vmcjob.results.report import Content, CurveFacts, PageTable, Picture, RunFacts
    from vmcjob.rundir import RunDir
    from vmcjob.runs.status import RunStatus

MAIN = ("name", "energy", "verdict", "note")
"""Columns of the first table, which every screen has room for."""
MIN_POINTS = 2
MARK = b"<!DOCTYPE html>"


@app.command(cls=Command)
def report(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page, .html.")
    ],
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    sums: Sums = None,
    unbalanced: Unbalanced = False,
) -> None:
    """Write one page with energies, curves, pictures and specs.

    The page says how every number came about, needs no network and prints well; a sweep over one
    key has its curve. Ends with exit code 3 when a run had to be left out or an energy is not
    converged.
    """
    from vmcjob.results.report import render

    chosen = select_runs(selectors, site, runs)
    if not chosen:
        raise NotFoundError("there is nothing to report")
    _require_writable(output, chosen)
    reactions = read_reactions("--diff", sums or [], chosen)
    energies = make_energies(chosen)
    differences = add_up("--diff", reactions, energies, unbalanced=unbalanced)
    write_output(output, render(_content(energies, differences)))
    table = energies.table
    if energies.errors or table.excluded or not all(row.converged for row in table.rows):
        words = [
            *map(str, energies.errors),
            "some runs are left out or not converged; the page says why",
        ]
        raise IncompleteError("\n".join(words))


def _content(energies: Energies, differences: "Sequence[Difference]") -> "Content":
    from vmcjob.results.explain import trace_row
    from vmcjob.results.report import Content

    table, runs = energies.table, energies.runs
    columns = table_columns("hartree", table.rows)
    main = [one for one in columns if one.title in MAIN or one.title.startswith(("off by", "left"))]
    details = [one for one in columns if one not in main or one.title == "name"]
    measured = lines_of(read_observations(table, runs))
    left_out = (*table.excluded, *table.contained)
    explanations = {
        row.name: explanation_text(
            trace_row(
                row.name,
                {one: runs[one].run.store_path for one in row.run_ids},
                row.verdict,
                row.why,
            )
        )
        for row in table.rows
    }
    names = list(dict.fromkeys(row.name.partition(" ")[0] for row in table.rows)) or ["runs"]
    return Content(
        title=f"vmcjob report: {', '.join(names)}",
        facts={
            "written": f"{format_time(time.time())}, by vmcjob {__version__}",
            "runs": str(len(runs)),
            "energies": "hartree, one standard error in units of the last digit",
        },
        energies=_page_table(*make_table(main, table.rows)),
        sums=_page_table(*make_table(sum_columns("hartree"), differences)),
        curves=list(_curves(energies)),
        details=_page_table(*make_table(details, table.rows)),
        observables=_page_table(*make_table(COLUMNS, measured)),
        notes=[f"left out: {run_id}: {reason}" for run_id, reason in left_out],
        explanations=explanations,
        runs=[_run(row) for row in runs.values()],
    )


def _curves(energies: Energies) -> "Iterator[CurveFacts]":
    """The curve of each sweep over one key; rows that are no curve have none."""
    from vmcjob.plot import to_svg
    from vmcjob.results.report import CurveFacts, Picture

    names = dict.fromkeys(row.name.partition(" ")[0] for row in energies.table.rows)
    for name in names:
        rows = tuple(r for r in energies.table.rows if r.name.partition(" ")[0] == name)
        if len(rows) < MIN_POINTS:
            continue
        sweep = energies._replace(table=replace(energies.table, rows=rows))
        with suppress(VmcJobError):
            drawn = draw_sweeps(sweep)
            facts = dict(drawn.facts.get(name, {})) or {"no minimum": ", ".join(drawn.missing)}
            picture = Picture("Energies along the sweep.", to_svg(drawn.figure))
            yield CurveFacts(name, facts, picture)


def _page_table(columns: "Sequence[Heading]", cells: "Sequence[Sequence[Cell]]") -> "PageTable":
    from vmcjob.results.report import PageTable

    return PageTable(
        [column.title for column in columns], [[cell.text for cell in line] for line in cells]
    )


def _run(row: "RunStatus") -> "RunFacts":
    """What is said of one run; what cannot be read is left out, the table says why."""
    from vmcjob.results.report import RunFacts

    run = row.run
    provenance = run.read_provenance() or {}
    facts = run_facts(row, run.read_record()) | provenance_facts(provenance)
    try:
        texts = {run.spec_path.name: run.read_spec_text()}
    except VmcJobError as error:
        texts = {run.spec_path.name: str(error)}
    return RunFacts(row.run_id, facts, texts, list(_pictures(run)))


def _pictures(run: "RunDir") -> "Iterator[Picture]":
    """Draw the pictures that `plot` makes; if one cannot be drawn, the table gives the reason."""
    from vmcjob.plot import draw_observables, draw_overview, to_svg
    from vmcjob.results.observed import quantities
    from vmcjob.results.report import Picture

    with suppress(VmcJobError):
        series = read_series(run)
        caption = "Training on the left; evaluation, and how sure its energy is, on the right."
        yield Picture(caption, to_svg(draw_overview(series)))
        if found := quantities(run.store_path):
            drawn = draw_observables(title_of(run), found, say_numbers(found))
            yield Picture("What was measured beside the energy.", to_svg(drawn))


def _require_writable(path: Path, chosen: "Sequence[RunDir]") -> None:
    """UsageError, before any work, where a page would do harm or cannot be."""
    refuse_folders_of_runs(path, chosen)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path}: the page is HTML; name it .html")
    try:
        require_folder(path)
        if path.exists() and path.read_bytes()[: len(MARK)] not in (b"", MARK):
            raise UsageError(f"{path}: exists and is no page of HTML; remove it first")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
