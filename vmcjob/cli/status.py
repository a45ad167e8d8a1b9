"""The command `status`."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.choice import RowChoice
from vmcjob.cli.columns import TableColumn, make_document, make_fixed_table, make_table
from vmcjob.cli.expand import expand_options
from vmcjob.cli.hints import after_status, suggest, where_runs_are
from vmcjob.cli.newest import find_newer, say_replaced
from vmcjob.cli.options import AnySelectors, AsJson, RunsRoot, SiteProfile, select_runs
from vmcjob.cli.screen import (
    can_redraw,
    draw_table,
    is_terminal,
    n_columns,
    put_drawn,
    put_json,
    say,
)
from vmcjob.cli.text import (
    GAP,
    Cell,
    count,
    format_duration,
    format_energy,
    format_point,
    in_one_line,
    wrap,
)
from vmcjob.errors import UsageError, combine

if TYPE_CHECKING:
    from vmcjob.errors import RunDirError
    from vmcjob.runs.status import RunStatus

IsWatched = Annotated[
    bool, typer.Option("--watch", "-w", help="Look again every 2 s until all have ended.")
]
IsTree = Annotated[
    bool, typer.Option("--tree", help="Show each run below the one that it begins with.")
]
WATCH_S = 2.0
MAX_NOTES = 4  # told in full below the table
STATE_STYLES = {
    "RUNNING": "cyan",
    "FINISHED": "green",
    "STOPPING": "yellow",
    "BLOCKED": "red",
    "CANCELLED": "yellow",
    "PREEMPTED": "yellow",
    "EXHAUSTED": "yellow",
    "DIVERGED": "red",
    "FAILED": "red",
    "DEAD": "red",
}


def _state(row: "RunStatus") -> Cell:
    return Cell(row.state.lower(), STATE_STYLES.get(row.state, ""))


def format_step(row: "RunStatus") -> str:
    """The step of a run in its phase: train 20/500. Compiling has no steps of its own."""
    if row.phase == "compiling":
        return row.phase
    step = f"{row.step}/{row.n_steps}" if row.n_steps else ""
    return step if row.phase in (None, "done") else f"{row.phase} {step}"


def _note(row: "RunStatus") -> str:
    """Why a run waits or has ended, and which run has replaced it."""
    newer = f"trained on in {row.replaced_by}" if row.replaced_by else ""
    return "; ".join(filter(None, [row.message, newer]))


def _acceptance(row: "RunStatus") -> str:
    return "" if row.acceptance is None else f"{row.acceptance:.0%}"


def _has_several_seeds(rows: "Sequence[RunStatus]") -> bool:
    return len({row.seed for row in rows}) > 1


COLUMNS: "list[TableColumn[RunStatus]]" = [
    TableColumn("run", lambda row: row.run_id, names=("run_id", "name")),
    TableColumn("point", lambda row: format_point(row.point), dispensable=2, names=("point",)),
    TableColumn(
        *("seed", lambda row: str(row.seed), "right"),
        dispensable=7,
        names=("seed",),
        is_useful=_has_several_seeds,
    ),
    TableColumn("state", _state, names=("state",)),
    TableColumn("step", format_step, dispensable=1, names=("phase", "step", "n_steps")),
    TableColumn(
        *("energy", lambda row: format_energy(row.energy, row.error), "point"),
        names=("energy", "error"),
    ),
    TableColumn("accept", _acceptance, "right", dispensable=6, names=("acceptance", "steps_per_s")),
    TableColumn(
        "left", lambda row: format_duration(row.eta_s), "right", dispensable=3, names=("eta_s",)
    ),
    TableColumn(
        *("heartbeat", lambda row: Cell(format_duration(row.heartbeat_age_s), "dim"), "right"),
        dispensable=5,
        names=("heartbeat_age_s",),
    ),
    TableColumn(
        "note", lambda row: Cell(_note(row), "dim"), "note", dispensable=4, names=("message",)
    ),
    TableColumn(names=("job_id",)),
]


@app.command(cls=Command)
@expand_options
def status(
    choice: RowChoice,
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    as_json: AsJson = False,
    watch: IsWatched = False,
    tree: IsTree = False,
) -> None:
    """Show how the runs are doing, one line each. Energies are in hartree."""
    from vmcjob.runs.ancestry import as_trees
    from vmcjob.runs.status import rows
    from vmcjob.scheduler import Watch

    if tree and as_json:
        raise UsageError("--tree is for people; in JSON, spec.train.start_from of show tells")
    choice.require_known()
    jobs = Watch()

    def look() -> "tuple[list[RunStatus], list[RunDirError]]":
        chosen = select_runs(selectors, site, runs)
        found, errors = rows(chosen, jobs.look(chosen))
        found = choice.of(_mark_replaced(found, find_newer(chosen, selectors or ())))
        return (as_trees if tree else list)(found), errors

    is_whole = choice.is_all or tree or as_json
    found, errors = look()
    if watch:
        with _canvas(as_json) as draw:
            while any(row.state.is_active for row in found):
                draw(found if is_whole else _split(found)[0])
                time.sleep(WATCH_S)
                found, errors = look()
    shown, hidden = (found, {}) if is_whole else _split(found)
    _put_last(shown, where := where_runs_are(site, runs), as_json=as_json, is_watched=watch)
    say_replaced(hidden, "--all shows")
    if problems := [error for error in (jobs.error, *errors) if error is not None]:
        raise combine(problems)
    if not as_json:
        suggest(*after_status(found, where))
    choice.judge(found)


def _mark_replaced(found: "list[RunStatus]", newer: Mapping[str, str]) -> "list[RunStatus]":
    """The rows, of which each replaced one names the newer run."""
    return [replace(row, replaced_by=newer.get(row.run_id)) for row in found]


def _split(found: "list[RunStatus]") -> "tuple[list[RunStatus], dict[str, str]]":
    """The rows to show, and the finished runs that are left out, each with the newer run."""
    hidden = {r.run_id: r.replaced_by for r in found if r.replaced_by and r.state == "FINISHED"}
    return [row for row in found if row.run_id not in hidden], hidden


def _put_last(found: "list[RunStatus]", where: str, *, as_json: bool, is_watched: bool) -> None:
    """Print the rows that stay on the screen."""
    if as_json:
        put_json(_document(found), is_compact=is_watched)
    elif found:
        put_drawn(table := draw_status(found))
        _say_counts(found)
        _say_cut(found, table, where)


def draw_status(found: "list[RunStatus]") -> str:
    """The table of `vmcjob status`; in a pipe or a file, its columns are always the same."""
    make = make_table if is_terminal(sys.stdout) else make_fixed_table
    return draw_table(*make(COLUMNS, found))


def _document(found: "list[RunStatus]") -> dict[str, Any]:  # a JSON document
    """The output of `status --json`."""
    return {
        "schema_version": 1,
        "runs": [row_document(row) | {"replaced_by": row.replaced_by} for row in found],
    }


def row_document(row: "RunStatus") -> dict[str, Any]:  # a JSON document
    """The state of one run, as JSON."""
    return {**make_document(COLUMNS, row), "run_dir": str(row.run.path.absolute())}


def _say_counts(found: "list[RunStatus]") -> None:
    """Print the number of runs in each state below a long table."""
    if len(found) > 1 and is_terminal(sys.stdout):
        counts = Counter(row.state for row in found)
        say(", ".join(f"{number} {state.lower()}" for state, number in counts.items()), "dim")


def _say_cut(found: "list[RunStatus]", table: str, where: str) -> None:
    """Say in full the notes that the terminal has no room for: each may name a command."""
    if (width := n_columns()) is None:
        return
    cut: dict[str, list[str]] = {}
    for row in found:
        if (note := in_one_line(_note(row)).strip()) not in table:
            cut.setdefault(note, []).append(row.run.path.name)
    for note, run_ids in list(cut.items())[:MAX_NOTES]:
        more = f" and {len(run_ids) - 1} more" if run_ids[1:] else ""
        say(wrap(f"{run_ids[0]}{more}: {note}", width, len(GAP)), "dim")
    if left := list(cut.values())[MAX_NOTES:]:
        say(f"{count(len(left), 'more note')}: vmcjob show{where} {left[0][0]}", "dim")


@contextmanager
def _canvas(as_json: bool) -> "Iterator[Callable[[list[RunStatus]], None]]":
    """A function that shows one look after the other: in place on a terminal, else one by one."""
    if as_json:
        yield lambda found: put_json(_document(found), is_compact=True)
    elif not can_redraw(sys.stdout):
        yield lambda found: put_drawn(draw_status(found) + "\n")
    else:
        sys.stdout.write("\x1b[?1049h\x1b[?25l")  # the alternate screen, without a cursor
        try:
            yield lambda found: put_drawn("\x1b[H\x1b[J" + draw_screen(found))
        finally:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()


def draw_screen(found: "list[RunStatus]") -> str:
    """The table, cut to the height of the terminal: what works stays, then failures, then news."""
    room = max(1, shutil.get_terminal_size().lines - 3)  # below the titles, above a last line
    if len(found) <= room:
        return draw_status(found)
    in_order = sorted(range(len(found)), key=lambda at: (_urgency(found[at]), -at))
    shown = sorted(in_order[: room - 1])
    left = Counter(found[at].state.lower() for at in in_order[room - 1 :])
    words = ", ".join(f"{number} {state}" for state, number in left.items())
    return f"{draw_status([found[at] for at in shown])}\nand {words}"


def _urgency(row: "RunStatus") -> int:
    """What a person wants to see first: 0 for a run that is being worked on."""
    if row.state in ("RUNNING", "STOPPING"):
        return 0
    return 1 if STATE_STYLES.get(row.state) == "red" else 2
