"""The Typer application, and the handling of errors, interrupts and closed pipes."""

import os
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from vmcjob.cli.screen import forgive_encodings, say
from vmcjob.errors import VmcJobError
from vmcjob.version import __version__

INTERRUPTED = 130  # as shells report a process that SIGINT ended
PIPE_CLOSED = 141  # and SIGPIPE
NUMBERS = re.compile(r"a valid (int(?:eger)?|float)(?: range)?\b")
NOUNS = {"int": "a whole number", "integer": "a whole number", "float": "a number"}


class Commands(TyperGroup):
    """A user's mistake ends with a sentence and an exit code; only a bug shows a traceback."""

    def invoke(self, ctx: Any) -> object:  # Any: Typer does not export the type it passes
        """Run the command."""
        try:
            return super().invoke(ctx)
        except VmcJobError as error:
            say(str(error))
            raise typer.Exit(error.exit_code) from None
        except ModuleNotFoundError as error:
            if (package := _missing_package(error)) is None:
                raise
            say(f"the package {package} is not installed; pip install {package}")
            raise typer.Exit(VmcJobError.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _give_up_output()  # its reader has gone, as in `| head`
            raise typer.Exit(PIPE_CLOSED) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # Any: as in invoke
        """Find the command; where a spec stands in its place, name the command that starts it."""
        if args[0].endswith(".toml"):
            ctx.fail(f"'{args[0]}' is no command. Did you mean 'vmcjob submit {args[0]}'?")
        return super().resolve_command(ctx, args)


def _missing_package(error: ModuleNotFoundError) -> str | None:
    """The package that vmcjob requires and that is missing; None for any other module."""
    from importlib import metadata

    name = (error.name or "").partition(".")[0].replace("_", "-")
    required = metadata.requires("vmcjob") or ()
    needed = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in required}
    return name if name in needed else None


class Command(TyperCommand):
    """A command with its usage in the common notation, and plain words for bad numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: as in Commands
        """Parse the arguments; where Click calls a number an int range, say "whole number"."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = NUMBERS.sub(lambda kind: NOUNS[kind[1]], error.message)
            raise

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
