"""A walk from `init --cluster` to `archive` on a real SLURM, with every answer as shown."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.cluster.cluster import Room
from tests.walks import walk
from vmcjob.rundir import RunDir

pytestmark = pytest.mark.timeout(3600)


def test_a_new_user_gets_from_a_profile_to_an_archive(real_room: Room) -> None:
    """A step on a cluster that does not say how to go on, or whose next command fails."""
    room = real_room
    shell = Shell(room.cwd, room.environment | {"NO_COLOR": "1"})
    held: dict[RunDir, int] = {}

    def wait_for(run: RunDir, when: str) -> None:
        """Hold a run that trains, let a cancelled one stop, and wait for the end of another."""
        if when == "trains":  # what is typed meanwhile finds it there, however fast the machine is
            held.update(room.hold(run))
            return
        if when == "has stopped":
            os.kill(held[run], signal.SIGCONT)
        state = {"has stopped": "CANCELLED", "has finished": "FINISHED"}[when]
        room.wait_until(lambda: state_of_run(shell) == state, f"it {when}")

    walk(Path(__file__).with_name("walk.md"), shell, room.cwd / "vmcjob-runs", wait_for)


def state_of_run(shell: Shell) -> str:
    """The state of the only run, as `status` tells it."""
    (row,) = json.loads(shell.run("status", "--json").stdout)["runs"]
    return row["state"]
