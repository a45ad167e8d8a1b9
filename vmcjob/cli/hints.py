"""The next commands to type, in grey below the output of a command."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING

from vmcjob.cli.screen import is_terminal, say

if TYPE_CHECKING:
    from vmcjob.runs.status import RunStatus

DRY = ("-n", "--dry-run", "--check")


def say_next(*commands: str) -> None:
    """Print commands, without the name of the program, as lines to copy."""
    if commands:
        say("".join(f"\n  vmcjob {command}" for command in commands), "dim")


def suggest(*commands: str) -> None:
    """Print commands where a person reads the data: on a terminal."""
    if is_terminal(sys.stdout):
        say_next(*commands)


def where_runs_are(site: Path | None, runs: Path | None) -> str:
    """The options that lead other commands to the same runs, with a space before each."""
    options = {"--site": site, "--runs": runs}
    return "".join(f" {name} {quote(str(path))}" for name, path in options.items() if path)


def typed(*, command: str | None = None, without: Sequence[str] = ()) -> str:
    """The command line of this process, as another command or without some flags."""
    first, *others = sys.argv[1:]
    return f"{command or first} {join(word for word in others if word not in without)}"


def after_status(rows: "Sequence[RunStatus]", options: str) -> Iterator[str]:
    """Commands for the first run that is at work, failed or stopped, and for the finished ones."""
    going = next((row.run_id for row in rows if row.state.is_active), None)
    failed = next((row.run_id for row in rows if row.state == "FAILED"), None)
    stopped = next((r.run_id for r in rows if r.state in ("CANCELLED", "PREEMPTED", "DEAD")), None)
    if going:
        yield f"logs -f{options} {going}"
        yield f"cancel{options} {going}"
    if failed:
        yield f"logs{options} {failed}"
    if again := stopped or failed:
        yield f"resume{options} {again}"
    if any(row.state == "FINISHED" for row in rows):
        yield f"aggregate{options}"


def after_energies(selectors: Sequence[str], options: str) -> Iterator[str]:
    """Commands for runs whose energies are good; all runs without selectors."""
    named = f" {join(selectors)}" if selectors else ""
    yield f"plot{options}{named}"
    yield f"report{options} -o report.html{named}"
    everything = " '*'"
    yield f"archive{options}{named or everything}"
