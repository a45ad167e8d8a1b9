"""The table of energies of some runs, as `aggregate` shows it and others use it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from vmcjob.errors import UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.aggregate import Table
    from vmcjob.reaction import Reaction
    from vmcjob.rundir import RunDir
    from vmcjob.status import Row


class Energies(NamedTuple):
    """The table, the state of each of its runs, and what went wrong on the way."""

    table: "Table"
    runs: "dict[str, Row]"  # by run id
    errors: Sequence[VmcJobError]


def make_energies(chosen: "Sequence[RunDir]") -> Energies:
    """Energies of runs, pooled over seeds."""
    from vmcjob.aggregate import RunResult, aggregate
    from vmcjob.scheduler import Watch
    from vmcjob.status import rows

    found, errors = rows(chosen, Watch().look(chosen))
    table = aggregate(
        RunResult(
            run_id=row.run_id,
            name=row.name,
            point=row.point,
            seed=row.seed,
            science_sha256=row.science_sha256,
            state=row.state,
            store_path=row.run.store_path,
            **_read_facts(row.run),
        )
        for row in found
    )
    return Energies(table, {row.run_id: row for row in found}, errors)


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


def _read_facts(run: "RunDir") -> dict[str, Any]:
    """What the run's spec says beside its numbers: the energy to compare with, and the method."""
    from vmcjob.spec import load_resolved, science_keys

    try:
        spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    except VmcJobError:
        return {}  # an unreadable spec does not make the results worse
    return {"reference": spec.system.reference, "method": science_keys(spec)}
