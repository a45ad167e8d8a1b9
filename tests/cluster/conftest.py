"""A real SLURM for these tests: slurm/testbed brings it up and takes it down."""

import faulthandler
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import TESTBED, Cluster, Room

LOCK = Path(tempfile.gettempdir(), "vmcjob-testbed.lock")
BUILD = Path(__file__).parents[2] / "containers" / "build"


def pytest_runtest_setup() -> None:
    """Here the computing is done by other processes: pytest-timeout is all that is needed."""
    faulthandler.cancel_dump_traceback_later()


def _require(missing: str | None) -> None:
    """Skip where something is missing; VMCJOB_TEST_CLUSTER=required makes that a failure."""
    if missing is not None and os.environ.get("VMCJOB_TEST_CLUSTER") == "required":
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(missing)


def _missing_from_cluster() -> str | None:
    """Why there can be no cluster here, None if there can."""
    if os.geteuid() != 0:
        return "SLURM's daemons need root"
    programs = ["munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd"]
    missing = [program for program in programs if shutil.which(program) is None]
    return f"{', '.join(missing)} missing; {TESTBED} install" if missing else None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, without accounting."""
    _require(_missing_from_cluster())
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


@pytest.fixture(scope="session")
def image(cluster, tmp_path_factory) -> Iterator[Path]:
    """An image of this checkout for CPUs, which takes minutes to build; or $VMCJOB_TEST_IMAGE."""
    given = os.environ.get("VMCJOB_TEST_IMAGE")
    if shutil.which("apptainer", path=cluster.environment["PATH"]) is None:
        _require(f"no apptainer; {TESTBED} install-apptainer")
    if given is not None:
        yield Path(given)
        return
    python = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")
    if python is None:
        _require(f"{BUILD} needs Python 3.11")
    path = tmp_path_factory.mktemp("image") / "vmcjob-cpu.sif"
    environment = os.environ | cluster.environment | {"PYTHON": str(python)}
    subprocess.run([BUILD, path], env=environment, check=True)
    yield path
    path.unlink()  # pytest would keep three of them


@pytest.fixture
def room(cluster, tmp_path) -> Iterator[Room]:
    """A runs root on the cluster, whose jobs do not outlive the test."""
    room = Room(cluster, tmp_path)
    yield room
    room.close()


@pytest.fixture
def contained(room, image) -> Room:
    """A room whose site runs everything in an image."""
    return room.within(image)
