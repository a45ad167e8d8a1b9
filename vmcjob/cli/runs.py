"""Looking after runs: status, logs, cancel."""

import shutil
import sys
import time
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.options import (
    AnySelectors,
    AsJson,
    RunsRoot,
    Selector,
    SiteProfile,
    SomeSelectors,
    select_run,
    select_runs,
)
from vmcjob.cli.screen import (
    can_redraw,
    draw_table,
    is_terminal,
    put_drawn,
    put_json,
    put_table,
    say,
)
from vmcjob.cli.text import (
    Cell,
    Column,
    format_duration,
    format_energy,
    format_point,
    make_visible,
)
from vmcjob.errors import NotFoundError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.errors import RunDirError
    from vmcjob.rundir import RunDir
    from vmcjob.scheduler import Cancelled
    from vmcjob.status import Row

Reader = Callable[[], Iterator[bytes]]
"""Gives what has come to a log since it was last called."""
WATCH_S = 2.0
LOG_POLL_S = 0.5
STATE_STYLES = {
    "RUNNING": "cyan",
    "FINISHED": "green",
    "STOPPING": "yellow",
    "CANCELLED": "yellow",
    "PREEMPTED": "yellow",
    "DIVERGED": "red",
    "FAILED": "red",
    "DEAD": "red",
}
COLUMNS = [
    Column("run"),
    Column("point", rank=4),
    Column("seed", "right", rank=7),
    Column("state"),
    Column("step", rank=1),
    Column("energy", "point"),
    Column("accept", "right", rank=6),
    Column("left", "right", rank=2),
    Column("heartbeat", "right", rank=5),
    Column("note", "note", rank=3),
]


@app.command(cls=Command)
def status(
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again every 2 s until all have ended.")
    ] = False,
) -> None:
    """Show how the runs are doing, one line each. Energies are in hartree."""
    from vmcjob.scheduler import Watch
    from vmcjob.status import rows

    slurm = Watch()

    def look() -> "tuple[list[Row], list[RunDirError]]":
        chosen = select_runs(selectors, site, runs)
        return rows(chosen, slurm.look(chosen))

    found, errors = look()
    if watch:
        with _canvas(as_json) as draw:
            while any(row.state.is_active for row in found):
                draw(found)
                time.sleep(WATCH_S)
                found, errors = look()
    if as_json:
        put_json(_document(found), is_compact=watch)
    elif found:
        put_drawn(draw_status(found))
        _say_counts(found)
    if problems := [error for error in (slurm.error, *errors) if error is not None]:
        raise combine(problems)


@app.command(cls=Command)
def logs(
    selector: Selector,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends.")
    ] = False,
    is_job: Annotated[
        bool, typer.Option("--err", help="What its SLURM job said, instead of its workers.")
    ] = False,
    rank: Annotated[
        int | None,
        typer.Option(
            min=0, help="Of a run on several nodes, which worker's. [default: 0; with --err, all]"
        ),
    ] = None,
) -> None:
    """Print what the workers of one run said."""
    run = select_run(selector, site, runs)
    read = _job_reader(run, rank) if is_job else _worker_reader(run, rank or 0)
    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    for piece in _follow_log(run, read) if follow else read():
        sys.stdout.buffer.write(make_visible(decoder.decode(piece)).encode("utf-8"))
        sys.stdout.buffer.flush()


@app.command(cls=Command)
def cancel(
    selectors: SomeSelectors,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    as_json: AsJson = False,
    is_waited: Annotated[
        bool, typer.Option("--wait", help="Return when all have ended; ^C stops waiting.")
    ] = False,
) -> None:
    """Stop runs at a checkpoint, or take them out of the queue.

    A cancelled run keeps its results; submitting it again continues it.
    """
    from vmcjob import scheduler

    results = scheduler.cancel(select_runs(selectors, site, runs))
    errors = [done.error for done in results if done.error is not None]
    if not as_json and len(errors) < len(results):
        told = [done for done in results if done.error is None]
        rows = [[Cell(done.run.path.name), Cell(done.result)] for done in told]
        put_table([Column("run"), Column("result")], rows)
    ended = _wait([done.run for done in results if done.was_active and not done.error], is_waited)
    if as_json:
        put_json({"schema_version": 1, "cancelled": [_describe(done, ended) for done in results]})
    if errors:
        raise combine(_distinct(errors))


def _wait(runs: "list[RunDir]", is_waited: bool) -> "dict[RunDir, str]":
    """Wait until nothing will happen to the runs by itself; the state that each is in then."""
    from vmcjob.scheduler import Watch
    from vmcjob.status import examine

    slurm = Watch()
    while is_waited:
        seen = slurm.look(runs)
        states = {run: examine(run, seen).state for run in runs}
        if not any(state.is_active for state in states.values()):
            return dict(states)
        time.sleep(LOG_POLL_S)
    return {}


def _describe(done: "Cancelled", ended: "dict[RunDir, str]") -> dict[str, Any]:  # a JSON document
    """What became of one run that was to be cancelled."""
    values: dict[str, Any] = {  # a JSON document
        "run_id": done.run.path.name,
        "was_active": done.was_active,
        "result": str(done.error) if done.error else done.result,
        "run_dir": str(done.run.path.absolute()),
    }
    return values | ({"state": ended[done.run]} if done.run in ended else {})


def _distinct(errors: "list[VmcJobError]") -> "list[VmcJobError]":
    """The same sentence once: what a controller says that is away is said for every run."""
    return list({str(error): error for error in errors}.values())


def draw_status(found: "list[Row]") -> str:
    """The table of `vmcjob status`."""
    is_seed_shown = len({row.seed for row in found}) > 1
    return draw_table(COLUMNS, [_cells(row, is_seed_shown) for row in found])


def _cells(row: "Row", is_seed_shown: bool) -> list[Cell]:
    """One run as the cells of `COLUMNS`."""
    is_done = row.phase in (None, "done")
    step = f"{row.step}/{row.n_steps}" if row.n_steps else ""
    return [
        Cell(row.run_id),
        Cell(format_point(row.point)),
        Cell(str(row.seed) if is_seed_shown else ""),
        Cell(row.state.lower(), STATE_STYLES.get(row.state, "")),
        Cell(step if is_done else f"{row.phase} {step}"),
        Cell(format_energy(row.energy, row.error)),
        Cell("" if row.acceptance is None else f"{row.acceptance:.0%}"),
        Cell(format_duration(row.eta_s)),
        Cell(format_duration(row.heartbeat_age_s), "dim"),
        Cell(row.message, "dim"),
    ]


def _document(found: "list[Row]") -> dict[str, Any]:  # a JSON document
    """What `status --json` prints."""
    return {"schema_version": 1, "runs": [row_document(row) for row in found]}


def row_document(row: "Row") -> dict[str, Any]:  # a JSON document
    """How one run is doing."""
    keys = ["run_id", "name", "point", "seed", "state", "message", "phase", "step", "n_steps"]
    keys += ["energy", "error", "acceptance", "steps_per_s", "eta_s", "heartbeat_age_s", "job_id"]
    return {key: getattr(row, key) for key in keys} | {"run_dir": str(row.run.path.absolute())}


def _say_counts(found: "list[Row]") -> None:
    """How many runs are in which state, for a person in front of a long table."""
    if len(found) > 1 and is_terminal(sys.stdout):
        counts = Counter(row.state for row in found)
        say(", ".join(f"{number} {state.lower()}" for state, number in counts.items()), "dim")


@contextmanager
def _canvas(as_json: bool) -> "Iterator[Callable[[list[Row]], None]]":
    """How to show one look after the other: in place on a terminal, else one below the other."""
    if as_json:
        yield lambda found: put_json(_document(found), is_compact=True)
    elif not can_redraw(sys.stdout):
        yield lambda found: put_drawn(draw_status(found) + "\n")
    else:
        sys.stdout.write("\x1b[?1049h\x1b[?25l")  # the alternate screen, without a cursor
        try:
            yield lambda found: put_drawn("\x1b[H\x1b[J" + _cut_to_screen(draw_status(found)))
        finally:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()


def _cut_to_screen(text: str) -> str:
    """The titles and the newest runs, as many as there are lines."""
    lines = text.splitlines()
    room = max(1, shutil.get_terminal_size().lines - 2)
    return "\n".join([lines[0], *lines[1:][-room:]])


def _worker_reader(run: "RunDir", rank: int) -> Reader:
    """Reads on in the log of the run's workers of one rank."""
    from vmcjob.rundir import LogReader

    return partial(run.read_log, rank, LogReader(run.log_of(rank)))


def _job_reader(run: "RunDir", rank: int | None) -> Reader:
    """Reads on in what the run's job said, on the node of one rank or on all."""
    from vmcjob.scheduler import read_job_logs

    return partial(read_job_logs, run, {}, rank)


def _follow_log(run: "RunDir", read: Reader) -> Iterator[bytes]:
    """A log as it grows, until nothing more can come."""
    from vmcjob.scheduler import Watch
    from vmcjob.status import examine

    slurm = Watch()
    while True:
        queue = slurm.look([run])
        is_active = examine(run, queue).state.is_active  # before the log, to read the last words
        with suppress(NotFoundError):
            yield from read()
        if not is_active:
            return
        time.sleep(LOG_POLL_S)
