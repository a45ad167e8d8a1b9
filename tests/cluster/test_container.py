"""Jobs whose worker runs in a real image, built by containers/build."""

import hashlib
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import assert_same, is_told_to_stop, n_starts, series
from tests.cluster.test_life import assert_lives_a_whole_life
from vmcjob.rundir import Activity, RunDir
from vmcjob.store import RunStore

pytestmark = pytest.mark.timeout(3600)  # building the image included

TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


@pytest.mark.full_matrix  # the life of a job: test_life.py; jobs in an image: the next tests
def test_from_submit_to_an_energy_in_an_image(contained):
    assert_lives_a_whole_life(contained)


def test_a_job_runs_in_its_image_survives_a_warning_and_says_what_it_ran_in(contained, image):
    """USR2 to the whole tree would have emptied the image's file system under the worker."""
    threshold = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # every program is kept
    hidden = {"SECRET": "x", "APPTAINERENV_SECRET": "x", "SINGULARITYENV_SECRET": "x"}
    hidden["APPTAINER_BIND"] = f"{contained.cwd}:/secret"
    room = replace(contained, extra={**contained.extra, **threshold, **hidden})
    room.run("submit", room.spec(train=300, evaluate=6000))
    run = room.only_run()
    worker = room.hold(run)[run]
    submission = run.read_submission()
    assert submission is not None
    assert submission.job_id is not None
    names = {
        item.partition(b"=")[0]
        for item in Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    }
    assert {b"SLURM_JOB_ID", b"JAX_PLATFORMS", b"PYTHONNOUSERSITE"} <= names
    assert not {b"SECRET", b"PYTHONPATH", b"VIRTUAL_ENV"} & names
    assert not Path(f"/proc/{worker}/root/secret").exists()
    room.cluster.call("scancel", "--signal=URG", submission.job_id)
    room.wait_until(lambda: is_told_to_stop(run), "its supervisor has heard of it")
    os.kill(worker, signal.SIGCONT)
    room.wait_for(FINISHED=1)
    assert n_starts(run) == 2
    store = RunStore.open(run.store_path, "r", run_id=run.path.name)
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    assert store.attrs["provenance"]["image_sha256"] == digest
    (folder,) = (room.cwd / ".cache" / "vmcjob").iterdir()
    assert digest.startswith(folder.name)
    compiled = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert compiled
    # From its beginning, without a warning and with all that was compiled, it is the same run.
    disturbed = series(run)
    room.run("rerun", "h")
    room.wait_for(FINISHED=1)
    assert n_starts(run) == 1
    assert_same(run, disturbed)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == compiled


def is_training(run: RunDir) -> bool:
    """Whether a worker would have something to go on from."""
    beat = run.read_heartbeat()
    return beat is not None and beat.phase is Activity.TRAIN


def test_a_worker_in_an_image_does_not_outlive_its_supervisor(contained):
    """Its standard input ends, through Apptainer too: no process is left outside the allocation."""
    contained.run("submit", contained.spec(train=300, evaluate=6000))
    run = contained.only_run()
    contained.wait_until(lambda: is_training(run), "it trains")
    beat, submission = run.read_heartbeat(), run.read_submission()
    assert beat is not None
    assert submission is not None
    assert submission.pid is not None
    os.kill(submission.pid, signal.SIGKILL)
    contained.wait_until(lambda: not beat.process.is_alive(), "the worker has ended")
    contained.wait_for(PREEMPTED=1)
    message = contained.status()[0]["message"]
    assert message.startswith("stopped, for its supervisor had been killed; continues from ")
    contained.run("submit", "h.toml")
    contained.wait_for(FINISHED=1)


def test_a_worker_whose_image_is_ended_with_it_has_not_failed(contained):
    """SIGTERM reaches what mounts the image, and what is imported then cannot be."""
    contained.run("submit", contained.spec())
    run = contained.only_run()
    seen: set[str] = set()
    contained.wait_until(run.read_heartbeat, "it begins")
    contained.cluster.call("scontrol", "requeue", *contained.cluster.job_ids(contained.cwd))

    def is_back() -> bool:
        seen.update(contained.states())
        return n_starts(run) == 2

    contained.wait_until(is_back, "it comes back")
    assert seen <= {"RUNNING", "STOPPING", "QUEUED"}
    contained.wait_for(FINISHED=1)


def test_two_nodes_share_a_run_each_in_an_image(contained):
    """Every rank has an image of its own, and an environment: they meet through both."""
    room = replace(contained, extra={**contained.extra, **TWO_DEVICES})
    room.run("submit", room.spec(extra="nodes = 2"))
    room.wait_for(FINISHED=1)
    run = room.only_run()
    provenance = RunStore.open(run.store_path).attrs["provenance"]
    assert provenance["devices"] == "2 ranks of 2 × cpu"
    assert provenance["image_sha256"]
    seen = [run.environment_path_of(rank).read_text() for rank in (0, 1)]
    for rank, text in enumerate(seen):
        assert f"SLURM_PROCID={rank}\n" in text
    assert "rank 1 of 2 meets the others" in room.run("logs", "--rank", "1", "h")


def test_another_image_than_the_pinned_one_is_refused(contained, image):
    spec = contained.spec(extra=f'[container]\nimage = "{image}"\nsha256 = "{64 * "0"}"')
    done = contained.start("submit", spec)
    assert done.returncode == 6
    assert "the pin asks for" in done.stderr
    assert not contained.runs.exists()
