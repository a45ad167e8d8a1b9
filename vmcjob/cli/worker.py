"""What machines type: the worker of one run, and the launcher behind a local submission."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vmcjob.cli.app import Command, app


@app.command(cls=Command)
def run(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Directory of the run.")],
) -> None:
    """Work on one run, here and now, until it ends. (`submit` starts this in the background.)"""
    from vmcjob.run import main

    raise typer.Exit(main(run_dir))


@app.command("local-queue", hidden=True, cls=Command)
def local_queue(root: Annotated[Path, typer.Argument(help="Root of the run directories.")]) -> None:
    """Start the runs of one submission in turn; the order comes through standard input."""
    from vmcjob.scheduler import serve

    serve(root, sys.stdin.buffer)
