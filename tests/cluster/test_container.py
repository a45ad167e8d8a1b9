"""Jobs whose worker runs in a real image, built by containers/build and named to these tests."""

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Room
from vmcjob.store import RunStore

IMAGE = os.environ.get("VMCJOB_TEST_IMAGE")


@pytest.fixture
def contained(room) -> Room:
    """A room whose site runs everything in the image."""
    if IMAGE is None:
        pytest.skip("$VMCJOB_TEST_IMAGE names no image; containers/build makes one")
    if shutil.which("apptainer", path=room.environment["PATH"]) is None:
        pytest.skip("no apptainer; slurm/testbed/testbed install-apptainer")
    site = room.cwd / "site.toml"
    site.write_text(f'[container]\nimage = "{IMAGE}"\noptions = ["--userns"]\n')
    return replace(room, extra={"VMCJOB_SITE": str(site), "SECRET": "of the host"})


def test_a_job_runs_in_its_image_survives_a_warning_and_says_what_it_ran_in(contained):
    """USR2 to the whole tree would have emptied the image's file system under the worker."""
    room = contained
    room.run("submit", room.spec(train=300, evaluate=1500))
    run = room.only_run()

    def is_computing() -> bool:
        beat = run.read_heartbeat()
        return beat is not None and beat.steps_per_s is not None

    room.wait_until(is_computing, "it computes")
    beat, submission = run.read_heartbeat(), run.read_submission()
    assert beat is not None
    assert submission is not None
    assert submission.job_id is not None
    names = {
        item.partition(b"=")[0]
        for item in Path(f"/proc/{beat.pid}/environ").read_bytes().split(b"\0")
    }
    assert {b"SLURM_JOB_ID", b"JAX_PLATFORMS", b"PYTHONNOUSERSITE"} <= names
    assert not {b"SECRET", b"PYTHONPATH", b"VIRTUAL_ENV"} & names
    room.cluster.call("scancel", "--signal=URG", submission.job_id)
    room.wait_for(FINISHED=1)
    starts = [line for line in run.read_attempts() if line["event"] == "start"]
    assert len(starts) == 2
    store = RunStore.open(run.store_path, "r", run_id=run.path.name)
    assert IMAGE is not None
    digest = hashlib.sha256(Path(IMAGE).read_bytes()).hexdigest()
    assert store.attrs["provenance"]["image_sha256"] == digest


def test_another_image_than_the_pinned_one_is_refused(contained):
    spec = contained.spec(extra=f'[container]\nimage = "{IMAGE}"\nsha256 = "{64 * "0"}"')
    done = contained.start("submit", spec)
    assert done.returncode == 6
    assert "was asked for" in done.stderr
    assert not contained.runs.exists()
