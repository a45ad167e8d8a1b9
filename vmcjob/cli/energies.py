"""The table of energies of some runs, as `aggregate` shows it and others use it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from vmcjob.cli.progress import Progress
from vmcjob.errors import UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.evaluation import Evaluated, RunResult, UnusableError
    from vmcjob.reaction import Reaction
    from vmcjob.rundir import RunDir
    from vmcjob.status import Row
    from vmcjob.table import Table


class Energies(NamedTuple):
    """The table, the state of each of its runs, and what went wrong on the way."""

    table: "Table"
    runs: "dict[str, Row]"  # by run id
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
    from vmcjob.evaluation import attempt_all, share_slopes
    from vmcjob.parallel import default_processes
    from vmcjob.scheduler import Watch
    from vmcjob.status import rows

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


def read_reactions(option: str, sums: Sequence[str]) -> "list[Reaction]":
    """What an option asks for; UsageError for what is no sum, before there is anything to add."""
    from vmcjob.reaction import ReactionError, parse

    try:
        return [parse(text) for text in sums]
    except ReactionError as error:
        raise UsageError(f"{option}: {error}") from None


def add_up(option: str, reactions: "Sequence[Reaction]", table: "Table") -> list[Difference]:
    """The sums, of the rows of a table; UsageError for a name that has no row."""
    from vmcjob.reaction import Measured, ReactionError
    from vmcjob.table import VERDICTS

    known = {row.name: Measured(row.energy, row.error) for row in table.rows}
    verdicts = {row.name: row.verdict for row in table.rows}
    try:
        found = [(reaction, reaction.energy(known)) for reaction in reactions]
    except ReactionError as error:
        raise UsageError(f"{option}: {error}") from None
    return [
        Difference(
            sum=reaction.text,
            energy=sum_.energy,
            error=sum_.error,
            verdict=max((verdicts[name] for name in reaction.factors), key=VERDICTS.index),
        )
        for reaction, sum_ in found
    ]
