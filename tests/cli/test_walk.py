"""A walk from `init` to `archive`: each command was printed by one before, and answers as shown."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.cli.test_end_to_end import step_of_training
from tests.runs import end_everything, wait_until
from tests.walks import walk
from vmcjob.rundir import RunDir
from vmcjob.runs.status import State, examine


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
    shell = Shell(tmp_path, {"NO_COLOR": "1"})
    try:
        walk(Path(__file__).with_name("walk.md"), shell, shell.runs, wait_for)
    finally:
        end_everything(shell.runs)
