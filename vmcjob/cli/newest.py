"""Runs that `resume --more-training` has replaced: commands take the newer runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.screen import say
from vmcjob.cli.text import count

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir


def find_newer(chosen: "Sequence[RunDir]", selectors: Sequence[str]) -> dict[str, str]:
    """The chosen runs that another chosen run has trained on from, each with that run.

    A run whose id is among the selectors is not one of them.
    """
    from vmcjob.results.replaced import replaced_by
    from vmcjob.runs.ancestry import trained_from

    continues = {run.path.name: run.continues for run in chosen}
    origins = {run.path.name: trained_from(run) for run in chosen}
    named = {Path(selector).name for selector in selectors}
    newer = replaced_by(continues, origins)
    return {run_id: other for run_id, other in newer.items() if run_id not in named}


def without_replaced(chosen: "Sequence[RunDir]", selectors: Sequence[str]) -> "list[RunDir]":
    """The chosen runs without the finished ones that were replaced; a line names the latter."""
    from vmcjob.runs.status import examine

    by_id = {run.path.name: run for run in chosen}
    replaced = find_newer(chosen, selectors).items()
    newer = {one: other for one, other in replaced if examine(by_id[one]).state == "FINISHED"}
    say_replaced(newer, "vmcjob status --all lists")
    return [run for run in chosen if run.path.name not in newer]


def say_replaced(newer: Mapping[str, str], how: str) -> None:
    """Say in one line which runs were left out because newer ones have trained on.

    `how` is the command that shows them, with its verb.
    """
    if len(newer) == 1:
        ((run_id, other),) = newer.items()
        say(f"left out: {run_id}  trained on in {other}; {how} it", "dim")
    elif newer:
        say(f"left out: {count(len(newer), 'run')}, trained on in newer runs; {how} them", "dim")
