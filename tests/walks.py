"""A recorded walk: a page of commands with their output, typed again on a terminal."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.cli.shell import Shell
from vmcjob.rundir import RunDir, list_runs

RUN = "h-RUN"
"""Stands for the run id in a page; HOME stands for the home directory."""
_STEP = re.compile(r"^### (.+?)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WHEN = re.compile(r"^<!-- when it (.+) -->$", re.MULTILINE)


class Step(NamedTuple):
    """What to wait for, the file to write, and the command with its output."""

    title: str
    when: str
    files: dict[str, str]
    command: str
    output: str


def read_steps(page: str) -> list[Step]:
    """The steps of a page."""
    steps = []
    for title, text in _STEP.findall(page):
        blocks = _BLOCK.findall(text)
        (dialogue,) = (code for language, _, code in blocks if language == "console")
        command, _, output = dialogue.removeprefix("$ vmcjob ").partition("\n")
        files = {name: code for language, name, code in blocks if language != "console"}
        when = _WHEN.search(text)
        steps.append(Step(title, when[1] if when else "", files, command, output))
    return steps


def plain(text: str) -> str:
    """A text without colours, cursor moves, and spaces that only align columns."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return "".join(f"{' '.join(line.split())}\n" for line in text.splitlines()).strip()


def assert_shown(expected: str, shown: str) -> None:
    """Compare line by line; … is any text in a line, and ⋮ any lines."""
    pattern = re.escape(plain(expected)).replace("…", ".*").replace("\\\n⋮", r"(?:\n.*)*")
    pattern = pattern.replace("⋮", r"(?:.|\n)*")
    assert re.fullmatch(pattern, plain(shown)), f"expected:\n{expected}\nshown:\n{shown}"


def walk(page: Path, shell: Shell, root: Path, wait_for: Callable[[RunDir, str], None]) -> None:
    """Type the commands of a page; each must be printed by one before, and answer as shown.

    `wait_for` gets the run of the walk in `root`, and the words of the page for what it must do.
    """
    run_id, printed = RUN, ""
    for step in read_steps(page.read_text("utf-8")):
        for name, text in step.files.items():
            (shell.cwd / name).write_text(text, "utf-8")
        if step.when:
            wait_for(list_runs(root)[0], step.when)
        code, shown = shell.run_on_terminal(*shlex.split(step.command.replace(RUN, run_id)))
        run_id = next((run.path.name for run in list_runs(root)), RUN)
        shown = re.sub(r"\bh-[0-9a-f]{10}\b", RUN, shown).replace(str(shell.cwd), "HOME")
        assert code == 0, f"{step.title}:\n{shown}"
        assert_shown(step.output, shown)
        # The differences only save time: the run that is logged is held, and H is a small molecule.
        wanted = step.command.replace("logs", "logs -f").removesuffix(" --no-calibration")
        wanted = wanted.replace("--molecule H", "--molecule H2O")
        assert not printed or f"  vmcjob {wanted}" in printed, step.title
        printed += shown
