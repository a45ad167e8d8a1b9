"""One run on both nodes of a real SLURM: two devices on each, collectives by gloo."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.cluster import LOOK_S, Cluster, Room, assert_same, is_computing, n_starts, series
from vmcjob.rundir import RunDir
from vmcjob.store import RunStore

pytestmark = pytest.mark.timeout(3600)

N_STEPS = {"train": 20, "evaluate": 600}  # enough to be disturbed in
# The order of sums differs, and an update multiplies what that does.
NUMERICS = '[numerics]\ndtype = "float64"'
NODES = f"nodes = 2\n{NUMERICS}"
MANY_DEVICES = "--xla_force_host_platform_device_count"


def with_devices(room: Room, n_devices: int) -> Room:
    """A room whose workers see so many devices on each node."""
    room.cwd.mkdir(exist_ok=True)
    return replace(room, extra={"XLA_FLAGS": f"{MANY_DEVICES}={n_devices}"})


@pytest.fixture
def nodes(room: Room) -> Room:
    return with_devices(room, 2)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run on both nodes that is left in peace."""
    room = with_devices(Room(cluster, tmp_path_factory.mktemp("undisturbed")), 2)
    room.run("submit", room.spec(**N_STEPS, extra=NODES))
    room.wait_for(FINISHED=1)
    return room.only_run()


def submit(room: Room) -> RunDir:
    """Such a run, computing."""
    room.run("submit", room.spec(**N_STEPS, extra=NODES))
    run = room.only_run()
    room.wait_until(lambda: is_computing(run), "it computes", LOOK_S)
    return run


def worker_of_rank(run: RunDir, rank: int) -> int:
    """The pid of the process that computes as this rank."""
    ours = [b"run", os.fsencode(run.path), b"--rank", b"%d" % rank]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if any(words[start : start + len(ours)] == ours for start in range(len(words))):
            return int(path.parent.name)
    raise AssertionError(f"there is no worker of rank {rank}")


@pytest.mark.full_matrix  # numbers: run/test_ranks.py; real ranks: test_container.py
def test_two_nodes_compute_what_one_does_with_as_many_devices(real_room):
    """One update equal but for the order of sums, and then the same energy."""
    both = with_devices(replace(real_room, cwd=real_room.cwd / "both"), 2)
    both.run("submit", both.spec(**N_STEPS, extra=NODES))
    alone = with_devices(real_room, 4)
    alone.run("submit", alone.spec(**N_STEPS, extra=NUMERICS))
    alone.wait_for(FINISHED=1)
    both.wait_for(FINISHED=1)
    one, two = series(alone.only_run()), series(both.only_run())
    for name in ("train/energy", "train/variance", "train/grad_norm"):
        np.testing.assert_allclose(two[name][0], one[name][0], rtol=1e-10, err_msg=name)
        # Conjugate gradients end at a residual of 1e-6: a direction is the same to 1e-4.
        np.testing.assert_allclose(two[name][1], one[name][1], rtol=1e-4, err_msg=name)
    energies = [found["evaluate/energy"] for found in (one, two)]
    errors = [column.std() / np.sqrt(len(column) / 10) for column in energies]
    assert abs(energies[0].mean() - energies[1].mean()) < 5 * np.hypot(*errors)
    assert energies[0].mean() < 0.0  # of hydrogen, and not of the fake's well
    provenance = RunStore.open(both.only_run().store_path).attrs["provenance"]
    assert provenance["devices"] == "2 ranks of 2 × cpu"
    assert b"rank 1 of 2 meets the others at n1:" in b"".join(both.only_run().read_log(rank=1))


def test_a_killed_rank_takes_the_job_down_and_resume_goes_on(nodes):
    """That the bits are the same, run/test_ranks.py shows without SLURM."""
    run = submit(nodes)
    os.kill(worker_of_rank(run, 1), signal.SIGKILL)
    nodes.wait_until(lambda: not nodes.cluster.job_ids(nodes.cwd), "the job has ended")
    (state,) = nodes.states()
    assert state in ("DEAD", "FAILED")
    lost = [line for line in run.read_attempts() if line["event"] == "lost" and "rank" in line]
    assert [(line["rank"], line["how"]) for line in lost] == [(1, "SIGKILL")]
    assert "rank 1: SIGKILL" in nodes.run("show", "h")
    assert "rank 1 of 2 meets the others" in nodes.run("logs", "--rank", "1", "h")
    options = ([], ["--rank", "0"], ["--rank", "1"])
    everywhere, *each = (set(nodes.run("logs", "--err", *o, "h").splitlines()) for o in options)
    assert all(each)
    assert each[0] | each[1] == everywhere
    assert each[0] != each[1]
    n_before = len(series(run)["evaluate/energy"])
    nodes.run("resume", "@last")
    nodes.wait_for(FINISHED=1)
    assert n_starts(run) == 2
    assert len(series(run)["evaluate/energy"]) == N_STEPS["evaluate"]
    beginnings = [line for line in run.log_path.read_text().splitlines() if ", from " in line]
    assert f"evaluate step {n_before}/" in beginnings[-1] or not n_before


@pytest.mark.full_matrix  # on one node: test_endings.py; ranks: run/test_ranks.py
def test_a_warning_stops_all_ranks_at_one_step_and_the_job_comes_back(nodes, undisturbed):
    """SLURM sends it to every task; each supervisor passes one signal on to its own worker."""
    run = submit(nodes)
    submission = run.read_submission()
    assert submission is not None
    assert submission.job_id is not None
    nodes.cluster.call("scancel", "--signal=URG", submission.job_id)
    nodes.wait_until(lambda: n_starts(run) == 2, "the second attempt has begun")
    nodes.wait_for(FINISHED=1)
    assert [line for line in run.read_attempts() if line["event"] == "lost"] == []
    assert_same(run, series(undisturbed))
