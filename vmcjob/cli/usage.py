"""The table of aggregate --usage: what runs have used of what their jobs asked for."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vmcjob.cli import spent as words
from vmcjob.cli.columns import TableColumn, make_table
from vmcjob.cli.screen import put, put_table
from vmcjob.cli.spent import Asked, advise, read_asked

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir
    from vmcjob.runs.usage import Spent

UNKNOWN = "no worker has recorded its use yet, and no accounting knows these runs"


@dataclass(frozen=True)
class RunUse:
    """The resources of one run: asked for, noted by its worker, and accounted by SLURM."""

    run_id: str
    name: str
    asked: Asked
    worker: "Spent"
    accounting: "Spent | None"

    @property
    def is_noted(self) -> bool:
        """Whether a worker has noted its use; one that was killed has not."""
        return self.worker.seconds is not None

    @property
    def used(self) -> "Spent":
        """What the worker noted; without that, what the accounting knows."""
        return self.worker if self.is_noted or self.accounting is None else self.accounting

    def to_json(self) -> dict[str, Any]:  # a JSON document
        """All numbers; null where a number is not known."""
        return asdict(self) | {"advice": advise(self.used, self.asked) or None}


@dataclass(frozen=True)
class UseLine:
    """A line of the table: one source's numbers about one run."""

    run_id: str
    source: str
    asked: Asked
    used: "Spent"


COLUMNS: "list[TableColumn[UseLine]]" = [
    TableColumn("run", lambda line: line.run_id),
    TableColumn("by", lambda line: line.source, dispensable=2),
    TableColumn("peak memory", lambda line: words.memory_words(line.used, line.asked)),
    TableColumn("CPUs busy", lambda line: words.cpu_words(line.used)),
    TableColumn("GPU busy", lambda line: words.gpu_words(line.used)),
    TableColumn("GPU memory", lambda line: words.gpu_memory_words(line.used)),
    TableColumn("time", lambda line: words.time_words(line.used, line.asked)),
    TableColumn("waited", lambda line: words.waiting_words(line.used), dispensable=1),
]


def read_use(runs: "Sequence[RunDir]") -> list[RunUse]:
    """The resources of each run."""
    from vmcjob.runs.usage import spent
    from vmcjob.scheduler import ask_for_use, find_script

    accounts, found = ask_for_use(runs), []
    for run in runs:
        path = find_script(run)
        try:
            script = None if path is None else path.read_text("utf-8", "replace")
        except OSError:  # removed, or not readable: what was asked for is not known
            script = None
        used = spent(run.read_attempts(), run.read_submission())
        name = run.path.name.rpartition("-")[0]
        asked = read_asked(run, script)
        found.append(RunUse(run.path.name, name, asked, used, accounts.get(run)))
    return found


def show_use(found: Sequence[RunUse]) -> None:
    """Print the table, if there is one, and one line of advice for each spec that asks too much."""
    if not found:
        return
    put("")
    if not (lines := _lines(found)):
        put(UNKNOWN)
        return
    put_table(*make_table(COLUMNS, lines))
    for advice in advise_all(found):
        put(advice)


def _lines(found: Sequence[RunUse]) -> list[UseLine]:
    """The lines of the table; the worker's numbers come first."""
    lines = []
    for one in found:
        if one.is_noted:
            lines.append(UseLine(one.run_id, "worker", one.asked, one.worker))
        if one.accounting is not None:
            lines.append(UseLine(one.run_id, "accounting", one.asked, one.accounting))
    return lines


def advise_all(found: Sequence[RunUse]) -> list[str]:
    """One line for each spec whose runs all ask for much more than any of them has used."""
    from vmcjob.runs.usage import most

    advice = []
    for name in dict.fromkeys(one.name for one in found):
        same = [one for one in found if one.name == name]
        if text := advise(most(one.used for one in same), Asked.least(one.asked for one in same)):
            advice.append(f"{name}: {text}")
    return advice
