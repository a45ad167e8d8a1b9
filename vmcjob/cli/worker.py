"""Commands that other programs start: the worker of one run, and the local launcher."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.protocol.rank import Rank


@app.command(cls=Command)
def run(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Directory of the run.")],
    rank: Annotated[
        int, typer.Option(min=0, help="Which of several processes this is, counted from 0.")
    ] = 0,
    ranks: Annotated[int, typer.Option(min=1, help="Processes that share the run.")] = 1,
    coordinator: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where rank 0 listens.")
    ] = None,
) -> None:
    """Work on one run, here and now, until it ends. (`submit` starts this in the background.)

    To share a run among several machines, start this on each, with the same --ranks and
    --coordinator and another --rank.
    """
    from vmcjob.run import main
    from vmcjob.run.programs import is_compiling

    code = main(run_dir, Rank(rank, ranks, coordinator))
    # Python would wait for the compilation, but all is written and the exit code is known
    if is_compiling():
        logging.shutdown()
        os._exit(code)
    raise typer.Exit(code)


@app.command("local-queue", hidden=True, cls=Command)
def local_queue(root: Annotated[Path, typer.Argument(help="Root of the run directories.")]) -> None:
    """Start the runs of one submission in turn; the order comes through standard input."""
    from vmcjob.scheduler import serve

    serve(root, sys.stdin.buffer)
