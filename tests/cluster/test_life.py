"""The life of a job on a real SLURM: submitted, watched, finished, aggregated."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.cluster import TESTBED, Cluster, Room
from vmcjob.rundir import Activity, RunDir

pytestmark = pytest.mark.timeout(3600)


def test_bringing_the_testbed_up_twice_changes_nothing(cluster: Cluster):
    before = cluster.call("scontrol", "show", "config")
    done = subprocess.run([TESTBED, "up"], capture_output=True, text=True)
    assert "already up" in done.stderr
    boot = [line for line in before.splitlines() if line.startswith("BOOT_TIME")]
    assert boot[0] in cluster.call("scontrol", "show", "config")


def test_from_submit_to_an_energy(real_room: Room):
    assert_lives_a_whole_life(real_room)


def has_an_energy(run: RunDir) -> bool:
    """Whether the worker has told an energy with an error bar, and goes on."""
    beat = run.read_heartbeat()
    return beat is not None and beat.phase is not Activity.DONE and beat.error is not None


def assert_lives_a_whole_life(room: Room) -> None:
    """Every state in its turn, and energies while it runs, from another process each time.

    The first worker is stopped as soon as it has told an energy, until all has been looked at.
    """
    spec = room.spec(seeds=2, train=150, evaluate=4000)
    (drawn,) = json.loads(room.run("submit", "--dry-run", "--json", "--max-parallel=1", spec))[
        "jobs"
    ]
    done = json.loads(room.run("submit", "--json", "--max-parallel", "1", spec))
    job_id = done["submitted"][0]["job_id"].partition("_")[0]
    assert [item["job_id"] for item in done["submitted"]] == [f"{job_id}_0", f"{job_id}_1"]
    (submitted,) = room.runs.glob(f".slurm/*/{job_id}_submission.sh")
    assert submitted.read_text() == drawn["script"]
    assert submitted.parent.name == drawn["job_name"]

    run = RunDir(Path(done["submitted"][0]["run_dir"]))
    held = room.hold(run, is_time=has_an_energy)
    rows = {row["state"]: row for row in room.status()}
    assert rows.keys() == {"RUNNING", "QUEUED"}
    assert rows["RUNNING"]["error"] is not None
    assert rows["QUEUED"]["message"] == "waits for its turn in the array"
    again = json.loads(room.run("submit", "--json", spec))
    assert again["submitted"] == []
    assert sorted(item["reason"] for item in again["skipped"]) == ["queued", "running"]
    os.kill(held[run], signal.SIGCONT)
    room.wait_for(FINISHED=2)
    (row,) = json.loads(room.start("aggregate", "--json").stdout)["rows"]
    assert row["runs"] == 2
    assert row["n_steps"] == 8000
    assert abs(row["energy"] + 0.5) < 0.01  # a tiny network
    first = done["submitted"][0]["run_id"]
    shown = room.run("show", first)
    assert re.search(rf"^job +{job_id}_0$", shown, re.MULTILINE)
    assert drawn["script"].rstrip() in shown
    assert "submitit" in room.run("logs", "--err", first)
