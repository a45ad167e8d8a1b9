"""A real SLURM for these tests: slurm/testbed brings it up and takes it down."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import TESTBED, Cluster, Room

LOCK = Path(tempfile.gettempdir(), "vmcjob-testbed.lock")


def _missing() -> str | None:
    """Why there can be no cluster here, None if there can."""
    if os.geteuid() != 0:
        return "SLURM's daemons need root"
    programs = ["munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd"]
    missing = [program for program in programs if shutil.which(program) is None]
    return f"{', '.join(missing)} missing; {TESTBED} install" if missing else None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, without accounting; VMCJOB_TEST_CLUSTER=required makes a missing one a failure."""
    reason = _missing()
    if reason is not None and os.environ.get("VMCJOB_TEST_CLUSTER") == "required":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test session on this machine may be at it
        yield from _keep_up()


def _keep_up() -> Iterator[Cluster]:
    """The testbed for as long as it is needed; one that a person has up stays up."""
    cluster = Cluster()
    was_up = subprocess.run([TESTBED, "status"], capture_output=True).returncode == 0
    cluster.up()
    yield cluster
    if not was_up:
        cluster.down()


@pytest.fixture
def room(cluster, tmp_path) -> Iterator[Room]:
    """A runs root on the cluster, whose jobs do not outlive the test."""
    room = Room(cluster, tmp_path)
    yield room
    room.close()
