"""The table of energies of some runs, as `aggregate` shows it and others use it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from vmcjob.errors import UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.reaction import Reaction
    from vmcjob.rundir import RunDir
    from vmcjob.status import Row
    from vmcjob.table import Table


class Energies(NamedTuple):
    """The table, the state of each of its runs, and what went wrong on the way."""

    table: "Table"
    runs: "dict[str, Row]"  # by run id
    errors: Sequence[VmcJobError]


def make_energies(chosen: "Sequence[RunDir]", by: str | None = None) -> Energies:
    """Energies of runs, pooled over seeds; rows told apart by a key, if there is one."""
    from vmcjob.analysis.energies import table_of
    from vmcjob.scheduler import Watch
    from vmcjob.status import rows

    found, errors = rows(chosen, Watch().look(chosen))
    return Energies(table_of(found, by), {row.run_id: row for row in found}, errors)


class Difference(TypedDict):
    """A sum of energies of the table, and its standard error, in hartree."""

    sum: str  # as it was written
    energy: float
    error: float


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

    known = {row.name: Measured(row.energy, row.error) for row in table.rows}
    try:
        found = [(reaction.text, reaction.energy(known)) for reaction in reactions]
    except ReactionError as error:
        raise UsageError(f"{option}: {error}") from None
    return [Difference(sum=text, energy=sum_[0], error=sum_[1]) for text, sum_ in found]
