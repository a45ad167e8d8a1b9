"""The main job with real processes: submit, watch, kill, continue, aggregate."""

import json
import os
import signal
import sys

import numpy as np
import pytest

from tests.cli.shell import Shell, fake_shell
from tests.matrix import rest
from tests.runs import wait_until
from vmcjob.rundir import Activity, RunDir, list_runs
from vmcjob.runs.status import State, examine
from vmcjob.store import RunStore

pytestmark = pytest.mark.slow

TINY = """
name = "h"
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[ansatz]
determinants = 1
layers = 1
one_electron_width = 8
two_electron_width = 4
[sampler]
walkers = 32
warmup = 4
[pretrain]
steps = 0
[train]
steps = {train}
[evaluate]
steps = 64
warmup = 4
[output]
flush_seconds = 0.2
"""


def write_spec(shell: Shell, train: int) -> None:
    (shell.cwd / "h.toml").write_text(TINY.format(train=train))


def test_a_submitted_spec_ends_in_an_energy(shell):
    write_spec(shell, 300)
    done = shell.run("submit", "--follow", "--json", "h.toml")
    assert done.returncode == 0, done.stderr
    (submitted,) = json.loads(done.stdout)["submitted"]
    launcher = int(submitted["job_id"].removeprefix("local-"))
    with pytest.raises(ProcessLookupError):  # nobody is at work any more on what was followed
        os.kill(launcher, 0)
    (run,) = list_runs(shell.runs)
    last = done.stderr.splitlines()[-1]
    assert last.split()[:5] == [run.path.name, "-", "0", "finished", "64/64"]
    again = shell.run("submit", "h.toml")
    assert "skipped: finished" in again.stdout
    table = json.loads(shell.run("aggregate", "--json", "@last").stdout)
    (row,) = table["rows"]
    assert (row["runs"], row["n_steps"], row["run_ids"]) == (1, 64, [run.path.name])
    # Hydrogen is -0.5 hartree, and nothing is below the ground state.
    assert -0.5 - 5 * row["error"] < row["energy"] < -0.48


def test_a_killed_run_is_dead_and_continues_when_submitted_again(shell):
    """Nothing asks SIGKILL's victim: only the process table and the last commit tell of it."""
    shell = fake_shell(shell.cwd)
    write_spec(shell, 20000)
    assert shell.run("submit", "h.toml").returncode == 0
    (run,) = list_runs(shell.runs)
    wait_until(lambda: step_of_training(run) > 0, "training has begun")
    heartbeat = run.read_heartbeat()
    assert heartbeat is not None
    os.kill(heartbeat.pid, signal.SIGKILL)
    wait_until(lambda: examine(run).state is State.DEAD, "it is dead")
    assert "dead" in shell.run("status").stdout
    assert shell.run("submit", "h.toml").returncode == 0
    wait_until(lambda: examine(run).state is State.RUNNING, "it runs again")
    wait_until(lambda: is_beyond(run, heartbeat.step), "it has gone on")
    assert "asked to stop" in shell.run("cancel", "h").stdout
    wait_until(lambda: examine(run).state is State.CANCELLED, "it has stopped")
    wait_until(lambda: run.read_attempts()[-1]["event"] == "end", "its end is in the history too")
    events = [attempt["event"] for attempt in run.read_attempts()]
    assert events == ["start", "lost", "start", "end"]


@pytest.mark.full_matrix  # tests/cluster/test_container.py asks as much of an image
def test_a_rerun_with_cached_programs_ends_with_the_same_numbers(shell):
    """What the compile cache of an image does, here without an image."""
    cache = shell.cwd / "cache"
    extra = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    cached = Shell(shell.cwd, extra)
    write_spec(shell, 20)
    assert cached.run("submit", "--follow", "h.toml").returncode == 0
    kept = set(cache.iterdir())
    assert kept
    assert cached.run("rerun", "--follow", "h").returncode == 0
    assert set(cache.iterdir()) == kept, "a program was compiled again"
    (run,) = list_runs(shell.runs)
    (before,) = run.earlier
    first, second = (RunStore.open(found.store_path) for found in (before, run))
    for group in ("train", "evaluate"):
        for name, column in first.series(group).items():
            if name != "wall_time":
                np.testing.assert_array_equal(second.series(group)[name], column)


# `vmcjob submit` by a user whose files anybody may write.
CARELESS = """
import os
os.umask(0)
from vmcjob.cli import main
main()
"""


@pytest.mark.parametrize("private", [True, *rest(False)])
def test_nobody_else_may_write_into_a_run_or_read_a_private_one(shell, private):
    """Whatever the user's umask; worker, launcher and log included."""
    shell = fake_shell(shell.cwd)
    write_spec(shell, 64)
    (shell.cwd / "site.toml").write_text(f"private = {str(private).lower()}")
    arguments = ("submit", "--site", "site.toml", "--follow", "h.toml")
    done = shell.run(*arguments, python=(sys.executable, "-c", CARELESS))
    assert done.returncode == 0, done.stderr
    forbidden = 0o077 if private else 0o002
    paths = [shell.runs, *shell.runs.rglob("*")]
    assert len(paths) > 50
    assert [path for path in paths if path.stat().st_mode & forbidden] == []


def step_of_training(run: RunDir) -> int:
    """Steps of training done, as the heartbeat says."""
    heartbeat = run.read_heartbeat()
    return heartbeat.step if heartbeat and heartbeat.phase is Activity.TRAIN else 0


def is_beyond(run: RunDir, step: int) -> bool:
    """Whether a living worker has trained further than that."""
    return examine(run).state is State.RUNNING and step_of_training(run) > step
