"""A walk from `init` to `archive`: each command was printed by one before, and answers as shown."""

import os
import re
import shlex
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.shell import Shell
from tests.cli.test_end_to_end import step_of_training
from tests.runs import end_everything, wait_until
from vmcjob.rundir import RunDir, list_runs
from vmcjob.runs.status import State, examine

PAGE = Path(__file__).with_name("walk.md").read_text("utf-8")
_STEP = re.compile(r"^### (.+?)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WHEN = re.compile(r"^<!-- when it (.+) -->$", re.MULTILINE)
RUN = "h-RUN"
"""Stands for the run id in the page."""


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
    pattern = re.escape(plain(expected)).replace("…", ".*").replace("⋮", r"(?:.|\n)*")
    assert re.fullmatch(pattern, plain(shown)), f"expected:\n{expected}\nshown:\n{shown}"


def wait_for(run: RunDir, when: str) -> None:
    """Hold a run that trains, let a cancelled one stop, and wait for the end of another."""
    if when == "trains":
        wait_until(lambda: step_of_training(run) > 0, "training has begun")
    heartbeat = run.read_heartbeat()
    assert heartbeat is not None
    if when == "trains":  # what is typed meanwhile finds it there, however slow the machine is
        os.kill(heartbeat.pid, signal.SIGSTOP)
        return
    if when == "has stopped":
        os.kill(heartbeat.pid, signal.SIGCONT)
        wait_until(lambda: run.read_attempts()[-1]["event"] == "end", "its end is written")
    state = {"has stopped": State.CANCELLED, "has finished": State.FINISHED}[when]
    wait_until(lambda: examine(run).state is state, f"it {when}")


@pytest.mark.slow
def test_every_step_prints_the_next_command(tmp_path: Path) -> None:
    """A step that does not say how to go on sends people to the documentation."""
    shell, run_id, printed = Shell(tmp_path, {"NO_COLOR": "1"}), RUN, ""
    try:
        for step in read_steps(PAGE):
            for name, text in step.files.items():
                (tmp_path / name).write_text(text, "utf-8")
            if step.when:
                wait_for(list_runs(shell.runs)[0], step.when)
            code, shown = shell.run_on_terminal(*shlex.split(step.command.replace(RUN, run_id)))
            run_id = next((run.path.name for run in list_runs(shell.runs)), RUN)
            shown = re.sub(r"\bh-[0-9a-f]{10}\b", RUN, shown)
            assert code == 0, f"{step.title}:\n{shown}"
            assert_shown(step.output, shown)
            # The options left out and added here only save time: the run that is logged is held.
            wanted = step.command.replace("logs", "logs -f").removesuffix(" --no-calibration")
            assert not printed or f"  vmcjob {wanted}" in printed, step.title
            printed += shown
    finally:
        end_everything(shell.runs)
