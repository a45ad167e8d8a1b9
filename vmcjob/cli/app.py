"""The Typer application, and what becomes of errors, interrupts and closed pipes."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vmcjob import __version__
from vmcjob.cli.screen import forgive_encodings, say
from vmcjob.errors import VmcJobError

INTERRUPTED = 130  # as shells report a process that SIGINT ended
PIPE_CLOSED = 141  # and SIGPIPE


class Commands(TyperGroup):
    """A user's mistake ends in a sentence and an exit code; only a bug shows a traceback."""

    def invoke(self, ctx: Any) -> object:  # Any: Typer does not export the type it passes
        """Run the command."""
        try:
            return super().invoke(ctx)
        except VmcJobError as error:
            say(str(error))
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader of our output has gone (`| head`); the interpreter's last flush must not
            # find the broken pipe again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from None


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"vmcjob {__version__}")
        raise typer.Exit


@app.callback()
def vmcjob(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """From a TOML job spec to a variational Monte Carlo energy with an honest error bar."""


def main() -> None:
    """The `vmcjob` command."""
    forgive_encodings()
    app(prog_name="vmcjob")
