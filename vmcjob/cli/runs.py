"""The commands `logs` and `cancel`."""

import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.hints import names_of, suggest, where_runs_are
from vmcjob.cli.options import (
    AsJson,
    RunsRoot,
    Selector,
    SiteProfile,
    SomeSelectors,
    select_run,
    select_runs,
)
from vmcjob.cli.screen import put, put_json, put_table
from vmcjob.cli.text import (
    Cell,
    Heading,
    make_visible,
)
from vmcjob.errors import NotFoundError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir
    from vmcjob.scheduler import Cancelled

Reader = Callable[[], Iterator[bytes]]
"""Gives what has come to a log since it was last called."""
LOG_POLL_S = 0.5


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
            min=0,
            metavar="N",
            help="Of a run on several nodes, which worker's. [default: 0; with --err, all]",
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
        put_table([Heading("run"), Heading("result")], rows)
    ended = _wait([done.run for done in results if done.was_active and not done.error], is_waited)
    if ended and not as_json:
        rows = [[Cell(run.path.name), Cell(state.lower())] for run, state in ended.items()]
        put("")
        put_table([Heading("run"), Heading("state")], rows)
    if as_json:
        put_json({"schema_version": 1, "cancelled": [_describe(done, ended) for done in results]})
    if errors:
        raise combine(_distinct(errors))
    stopped = [done.run for done in results if done.was_active]
    if stopped and not as_json:
        options = where_runs_are(site, runs)
        suggest(f"status{options} {names_of(stopped)}", f"resume{options} {names_of(stopped)}")


def _wait(runs: "list[RunDir]", is_waited: bool) -> "dict[RunDir, str]":
    """Wait until no run will change by itself; the last state of each run."""
    from vmcjob.runs.status import examine
    from vmcjob.scheduler import Watch

    jobs = Watch()
    while is_waited:
        seen = jobs.look(runs)
        states = {run: examine(run, seen).state for run in runs}
        if not any(state.is_active for state in states.values()):
            return dict(states)
        time.sleep(LOG_POLL_S)
    return {}


def _describe(done: "Cancelled", ended: "dict[RunDir, str]") -> dict[str, Any]:  # a JSON document
    """The result of cancelling one run, as JSON."""
    values: dict[str, Any] = {  # a JSON document
        "run_id": done.run.path.name,
        "was_active": done.was_active,
        "result": str(done.error) if done.error else done.result,
        "run_dir": str(done.run.path.absolute()),
    }
    return values | ({"state": ended[done.run]} if done.run in ended else {})


def _distinct(errors: "list[VmcJobError]") -> "list[VmcJobError]":
    """Each sentence once: the same message about a controller may concern every run."""
    return list({str(error): error for error in errors}.values())


def _worker_reader(run: "RunDir", rank: int) -> Reader:
    """A reader of the log of one rank's workers."""
    from vmcjob.rundir import LogReader

    return partial(run.read_log, rank, LogReader(run.log_of(rank)))


def _job_reader(run: "RunDir", rank: int | None) -> Reader:
    """A reader of the log of the run's job, for one rank's node or all."""
    from vmcjob.scheduler import read_job_logs

    return partial(read_job_logs, run, {}, rank)


def _follow_log(run: "RunDir", read: Reader) -> Iterator[bytes]:
    """A log as it grows, until it is complete."""
    from vmcjob.runs.status import examine
    from vmcjob.scheduler import Watch

    jobs = Watch()
    while True:
        queue = jobs.look([run])
        is_active = examine(run, queue).state.is_active  # before the log, to read the last words
        with suppress(NotFoundError):
            yield from read()
        if not is_active:
            return
        time.sleep(LOG_POLL_S)
