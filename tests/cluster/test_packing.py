"""Four runs share a job with two GPUs of a real SLURM."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.cluster import Room, is_computing, n_starts
from vmcjob.rundir import RunDir

pytestmark = pytest.mark.timeout(3600)

GPUS = "CUDA_VISIBLE_DEVICES"
MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def environment(run: RunDir) -> dict[str, str]:
    """What the run's worker sees."""
    items = Path(f"/proc/{worker_pid(run)}/environ").read_text().split("\0")
    return dict(item.split("=", 1) for item in items if item)


def worker_pid(run: RunDir) -> int:
    beat = run.read_heartbeat()
    assert beat is not None
    return beat.pid


def is_told_to_stop(run: RunDir) -> bool:
    return any(line["event"] == "stop" for line in run.read_attempts())


def test_packed_runs_share_gpus_stop_and_come_back_together_and_are_cancelled_alone(room: Room):
    spec = room.spec(seeds=4, train=50, evaluate=6000, extra="runs_per_job = 4")
    text = (room.cwd / spec).read_text().replace("gpus = 0", "gpus = 2\ncpus = 4")
    (room.cwd / spec).write_text(text)
    done = json.loads(room.run("submit", "--json", spec))
    (job_id,) = {item["job_id"] for item in done["submitted"]}
    assert job_id.isdecimal()  # a plain job, and no array
    runs = room.list()
    room.wait_until(lambda: all(map(is_computing, runs)), "all compute")
    seen = [environment(run) for run in runs]
    assert sorted(Counter(found[GPUS] for found in seen).values()) == [2, 2]
    assert {found[MEMORY] for found in seen} == {"0.3750"}

    # Kept from finishing before they are disturbed.
    workers = {run: worker_pid(run) for run in runs}
    for pid in workers.values():
        os.kill(pid, signal.SIGSTOP)
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
