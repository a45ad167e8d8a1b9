"""The Typer application, and the handling of errors, interrupts and closed pipes."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from vmcjob.cli.screen import forgive_encodings, say
from vmcjob.errors import VmcJobError
from vmcjob.version import __version__

INTERRUPTED = 130  # as shells report a process that SIGINT ended
PIPE_CLOSED = 141  # and SIGPIPE


class Commands(TyperGroup):
    """A user's mistake ends with a sentence and an exit code; only a bug shows a traceback."""

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
            _give_up_output()  # its reader has gone, as in `| head`
            raise typer.Exit(PIPE_CLOSED) from None


class Command(TyperCommand):
    """A command with its usage in the common notation."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # Any: as in Commands
        """`SPEC...`, where newer releases of Typer write `{SPEC...}`."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


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
    """The `vmcjob` command. Files of this process and its workers are not writable by all users."""
    os.umask(os.umask(0o077) | 0o002)
    _open_closed_output()
    forgive_encodings()
    try:
        app(prog_name="vmcjob")
    except OSError as error:
        if not _is_output_broken():
            raise
        _give_up_output()
        say(f"standard output cannot be written: {error.strerror}")
        sys.exit(VmcJobError.exit_code)


def _open_closed_output() -> None:
    """If standard output is closed, make writes to it fail instead of disappearing."""
    if sys.stdout is None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        sys.stdout = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 -- ours to the end


def _is_output_broken() -> bool:
    """Whether standard output refuses a line end; if not, the error came from elsewhere."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False


def _give_up_output() -> None:
    """Let the interpreter's last flush succeed, because the error is already reported."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
