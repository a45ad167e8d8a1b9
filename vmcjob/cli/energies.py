"""The table of energies of some runs, as `aggregate` shows it and others use it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

import typer

from vmcjob.cli.progress import Progress
from vmcjob.errors import UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.results.evaluation import Evaluated, RunResult, UnusableError
    from vmcjob.results.reaction import Reaction
    from vmcjob.results.table import Row, Table
    from vmcjob.rundir import RunDir
    from vmcjob.runs.status import RunStatus
    from vmcjob.spec import JobSpec

Unbalanced = Annotated[
    bool,
    typer.Option(
        "--unbalanced", help="Add up even what has other nuclei or electrons on its two sides."
    ),
]


class Energies(NamedTuple):
    """The table, the state of each of its runs, and what went wrong on the way."""

    table: "Table"
    runs: "dict[str, RunStatus]"  # by run id
    errors: Sequence[VmcJobError]


def make_energies(
    chosen: "Sequence[RunDir]",
    by: str | None = None,
    n_processes: int | None = None,
    *,
    one_slope: bool = False,
) -> Energies:
    """Energies of runs, pooled over seeds; rows told apart by a key, if there is one.

    So many processes read stores, half as many as there are cores by default; a line says how far.
    With one slope, all runs of a sweep are extrapolated by it.
    """
    from vmcjob.analysis.energies import table_of
    from vmcjob.results.evaluation import attempt_all, share_slopes
    from vmcjob.results.parallel import default_processes
    from vmcjob.runs.status import rows
    from vmcjob.scheduler import Watch

    def attempts(results: "Sequence[RunResult]") -> "Iterator[Evaluated | UnusableError]":
        found = attempt_all(results, n_processes or default_processes())
        return Progress("reading results", len(results)).over(found)

    found, errors = rows(chosen, Watch().look(chosen))
    table = table_of(found, by, share_slopes(attempts) if one_slope else attempts)
    return Energies(table, {row.run_id: row for row in found}, errors)


class Difference(TypedDict):
    """A sum of energies of the table, and its standard error, in hartree; the worst verdict."""

    sum: str  # as it was written
    energy: float
    error: float
    verdict: str


def read_reactions(option: str, sums: Sequence[str], runs: "Sequence[RunDir]") -> "list[Reaction]":
    """The sums of an option, before any store is read.

    UsageError for a text that is no sum, and for a name that none of the runs has.
    """
    from vmcjob.results.reaction import ReactionError, describe_unknown, parse

    try:
        found = [parse(text) for text in sums]
    except ReactionError as error:
        raise UsageError(f"{option}: {error}") from None
    names = {name for run in runs if found and (name := name_of(run))}
    for reaction in found:  # a row's name begins with that of its runs
        if unknown := [name for name in reaction.factors if name.split()[0] not in names]:
            raise UsageError(f"{option}: {describe_unknown(unknown, names)}")
    return found


def name_of(run: "RunDir") -> str | None:
    """The name of a run's spec; None if the run's record is damaged."""
    try:
        return run.read_record().name
    except VmcJobError:
        return None


def add_up(
    option: str, reactions: "Sequence[Reaction]", energies: Energies, *, unbalanced: bool = False
) -> list[Difference]:
    """The sums, of the rows of a table.

    Raises UsageError for a name that has no row, and, unless `unbalanced`, for a sum that does not
    have the same nuclei and electrons on both sides.
    """
    from vmcjob.results.reaction import Measured, ReactionError
    from vmcjob.verdict.judgement import VERDICTS

    rows = {row.name: row for row in energies.table.rows}
    known = {name: Measured(row.energy, row.error) for name, row in rows.items()}
    try:
        found = [(reaction, reaction.energy(known)) for reaction in reactions]
    except ReactionError as error:
        raise UsageError(f"{option}: {error}") from None
    for reaction in () if unbalanced else reactions:
        require_balance(option, reaction, {name: rows[name] for name in reaction.factors}, energies)
    return [
        Difference(
            sum=reaction.text,
            energy=sum_.energy,
            error=sum_.error,
            verdict=max((rows[name].verdict for name in reaction.factors), key=VERDICTS.index),
        )
        for reaction, sum_ in found
    ]


def require_balance(
    option: str, reaction: "Reaction", rows: "Mapping[str, Row]", energies: Energies
) -> None:
    """UsageError unless both sides of a sum have the same nuclei and electrons.

    Args:
        option: the option that asks for the sum.
        reaction: the sum.
        rows: the row of each of its names.
        energies: the table that the rows are from.
    """
    from vmcjob.results.reaction import imbalance
    from vmcjob.spec import composition

    advice = "--unbalanced adds it up all the same"
    try:
        compositions = {
            name: composition(spec_of(row, energies).system) for name, row in rows.items()
        }
    except VmcJobError as error:
        raise UsageError(f"{option}: {error}; {advice}") from None
    if uneven := imbalance(reaction, compositions):
        raise UsageError(f"{option}: '{reaction.text}' does not balance: {uneven}; {advice}")


def spec_of(row: "Row", energies: Energies) -> "JobSpec":
    """The spec of the first run of a row."""
    from vmcjob.spec import load_resolved

    run = energies.runs[row.run_ids[0]].run
    return load_resolved(run.read_spec_text(), str(run.spec_path))
