"""Four runs share a job with two GPUs of a real SLURM."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.cluster import Room, is_told_to_stop, n_starts

pytestmark = pytest.mark.timeout(3600)

GPUS = "CUDA_VISIBLE_DEVICES"
MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def environment(pid: int) -> dict[str, str]:
    """The variables that a worker was given."""
    items = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(item.split("=", 1) for item in items if item)


def test_packed_runs_share_gpus_stop_and_come_back_together_and_are_cancelled_alone(room: Room):
    spec = room.spec(seeds=4, train=50, evaluate=300, extra="runs_per_job = 4")
    text = (room.cwd / spec).read_text().replace("gpus = 0", "gpus = 2\ncpus = 4")
    (room.cwd / spec).write_text(text)
    done = json.loads(room.run("submit", "--json", spec))
    (job_id,) = {item["job_id"] for item in done["submitted"]}
    assert job_id.isdecimal()  # a plain job, and no array
    runs = room.list()
    workers = room.hold(*runs)  # or the first would finish before the last begins
    seen = [environment(pid) for pid in workers.values()]
    assert sorted(Counter(found[GPUS] for found in seen).values()) == [2, 2]
    assert {found[MEMORY] for found in seen} == {"0.3750"}

    cancelled, *others = runs
    assert f"job {job_id} goes on with 3 other runs" in room.run("cancel", cancelled.path.name)
    room.wait_until(lambda: is_told_to_stop(cancelled), "its supervisor has heard of it")
    os.kill(workers[cancelled], signal.SIGCONT)
    room.wait_until(lambda: room.states()["CANCELLED"] == 1, "one has stopped")
    assert room.cluster.job_ids(room.cwd) == [job_id]
    assert not any(map(is_told_to_stop, others))
    room.cluster.call("scancel", "--signal=URG", job_id)  # as before a preemption
    room.wait_until(lambda: all(map(is_told_to_stop, others)), "the others have been warned")
    for run in others:
        os.kill(workers[run], signal.SIGCONT)
    room.wait_for(FINISHED=3, CANCELLED=1)
    assert [n_starts(run) for run in runs] == [1, 2, 2, 2]
    room.run("resume", cancelled.path.name)
    room.wait_for(FINISHED=4)
    assert n_starts(cancelled) == 2
