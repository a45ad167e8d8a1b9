"""The Typer application, and the handling of errors, interrupts and closed pipes."""

import os
import re
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any  # Any: Typer does not export the types that it passes

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group_from_info

from vmcjob.cli.catalogue import ENTRIES, EXAMPLES, PANELS
from vmcjob.cli.screen import When, choose_colour, forgive_encodings, say
from vmcjob.errors import VmcJobError
from vmcjob.version import __version__

INTERRUPTED = 130  # as shells report a process that SIGINT ended
PIPE_CLOSED = 141  # and SIGPIPE
NUMBERS = re.compile(r"a valid (int(?:eger)?|float)(?: range)?\b")
NOUNS = {"int": "a whole number", "integer": "a whole number", "float": "a number"}


class Commands(TyperGroup):
    """A user's mistake ends with a sentence and an exit code; only a bug shows a traceback."""

    def invoke(self, ctx: Any) -> object:
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

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands and options, without their help: that would import Rich."""
        return _without_help(super().shell_complete(ctx, incomplete))


def _missing_package(error: ModuleNotFoundError) -> str | None:
    """The package that vmcjob requires and that is missing; None for any other module."""
    from importlib import metadata

    name = (error.name or "").partition(".")[0].replace("_", "-")
    required = metadata.requires("vmcjob") or ()
    needed = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in required}
    return name if name in needed else None


class LateCommands(MutableMapping[str, Any]):
    """The commands by name; the module of a command is imported when the command is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            import_module(f"vmcjob.cli.{ENTRIES[name].module}")
            self._made[name] = _make_command(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


class Program(Commands):
    """The commands of the catalogue, each imported when it is used."""

    def __init__(self, **settings: Any) -> None:
        settings["commands"] = None
        super().__init__(**settings)
        self.commands = LateCommands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands in groups, as the catalogue has them."""
        del ctx
        width = max(map(len, ENTRIES))
        for title, panel in PANELS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), entry.sentence) for name, entry in panel.items()]
                formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands, without importing them; after a dash, the names of options."""
        start = incomplete if incomplete.startswith("-") else "-"
        options = TyperCommand.shell_complete(self, ctx, start)  # pyright: ignore[reportArgumentType]
        if incomplete.startswith("-"):
            return _without_help(options)
        item = type(options[0])  # Typer offers the class of its items under no public name
        names = (name for panel in PANELS.values() for name in panel)
        return [item(name) for name in names if name.startswith(incomplete)]


class Command(TyperCommand):
    """A command with its usage in the common notation, examples, and plain words for numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: as in Commands
        """Parse the arguments; where Click calls a number an int range, say "whole number"."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = NUMBERS.sub(lambda kind: NOUNS[kind[1]], error.message)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`SPEC...`, where newer releases of Typer write `{SPEC...}`."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples of the command."""
        if examples := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of options, without their help: that would import Rich."""
        return _without_help(super().shell_complete(ctx, incomplete))


def _without_help(items: list[Any]) -> list[Any]:
    for item in items:
        item.help = None
    return items


app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _make_command(name: str) -> Any:
    """The command that its module has registered; KeyError if it has not."""
    settings: dict[str, Any] = {"pretty_exceptions_short": True, "rich_markup_mode": None}
    for info in app.registered_groups:
        if info.name == name:
            return get_group_from_info(info, suggest_commands=True, **settings)
    for info in app.registered_commands:
        own = info.name or (info.callback and info.callback.__name__)
        if own == name:
            return get_command_from_info(info, **settings)
    raise KeyError(name)


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
    colour: Annotated[
        When, typer.Option("--color", help="Colours; auto: on a terminal, unless $NO_COLOR is set.")
    ] = When.AUTO,
) -> None:
    """From a TOML job spec to a variational Monte Carlo energy with an honest error bar."""
    del version
    choose_colour(colour)


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
