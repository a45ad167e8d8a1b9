"""The image for NVIDIA GPUs: what is in it, and what jobs in it do on nodes without a GPU."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from vmcjob.store import RunStore

pytestmark = [pytest.mark.timeout(3600), pytest.mark.full_matrix]  # builds for minutes

LOCK = Path(__file__).parents[2] / "containers" / "requirements-cuda12.txt"


def test_the_labels_name_the_locked_version_of_every_package(room, gpu_image):
    """A package that pip chose by itself would make the same recipe give another image."""
    facts = json.loads(room.run("image", "inspect", "--json", str(gpu_image)))
    labels = facts["labels"]
    assert labels["vmcjob.device"] == "cuda12"
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    assert "jax-cuda12-pjrt" in locked
    found = {name.replace("_", "-"): version for name, version in labels.items()}
    assert {name: found.get(f"vmcjob.version.{name}") for name in locked} == locked
    assert facts["size_bytes"] == gpu_image.stat().st_size


def test_a_job_that_asks_for_a_cpu_runs_in_it(room, gpu_image):
    """Slimming must leave what JAX loads without a GPU; `verify` runs the image's own test."""
    contained = room.within(gpu_image)
    assert "passed" in contained.run("image", "verify")
    contained.run("submit", contained.spec())
    contained.wait_for(FINISHED=1)
    provenance = RunStore.open(contained.only_run().store_path).attrs["provenance"]
    with open(gpu_image, "rb") as file:
        assert provenance["image_sha256"] == hashlib.file_digest(file, "sha256").hexdigest()
    assert "cpu" in provenance["devices"]


def test_a_job_whose_gpu_is_missing_fails_by_a_sentence(room, gpu_image):
    """A run that went on on the CPU instead would use up its hours."""
    contained = room.within(gpu_image)
    contained = replace(contained, extra={**contained.extra, "JAX_PLATFORMS": "cuda"})
    path = contained.cwd / contained.spec()
    path.write_text(path.read_text().replace("gpus = 0", "gpus = 1"))
    contained.run("submit", "h.toml")
    contained.wait_for(FAILED=1)
    message = contained.status()[0]["message"]
    assert message.startswith("JAX finds no device to compute on with ")
    assert "JAX_PLATFORMS=cuda" in message
