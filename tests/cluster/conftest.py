"""A real SLURM for these tests: slurm/testbed brings it up and takes it down."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import NUMBER, TESTBED, Cluster, Room
from tests.lanes import lane_of

LOCKS = Path(tempfile.gettempdir())
NUMBERS = range(1, 10)  # of testbeds; without a number is the one that a person brings up
IMAGE_LANE = lane_of("tests/cluster/test_container.py")
BUILD = Path(__file__).parents[2] / "containers" / "build"
GIVEN = "VMCJOB_TEST_IMAGE"
GIVEN_FOR_GPUS = "VMCJOB_TEST_GPU_IMAGE"
WHEELS_FOR_GPUS = "VMCJOB_TEST_GPU_WHEELS"
# An image that is a tenth larger, in a tenth of the processor time.
FAST = {"APPTAINER_MKSQUASHFS_ARGS": "-comp gzip -Xcompression-level 1"}


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
    """A testbed of two nodes for this process alone, without accounting.

    `.ci/run` may be installing SLURM just now. Other processes of tests have other testbeds.
    """
    with _locked("vmcjob-testbed.lock"):
        _require(_missing_from_cluster())
    with _own_number() as number:
        os.environ[NUMBER] = str(number)
        cluster = Cluster()
        cluster.down()  # a test session that was killed has left the testbed up
        cluster.up()
        yield cluster
        cluster.down()
        del os.environ[NUMBER]


@contextmanager
def _own_number() -> Iterator[int]:
    """The number of a testbed that no other process uses."""
    for number in NUMBERS:
        with _locked(f"vmcjob-testbed-{number}.lock", fcntl.LOCK_NB) as is_ours:
            if is_ours:
                yield number
                return
    pytest.fail("nine other processes test on testbeds")


@contextmanager
def _locked(name: str, flags: int = 0) -> Iterator[bool]:
    """Hold a lock of this machine; whether it is held, where `flags` say not to wait."""
    with open(LOCKS / name, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | flags)
        except BlockingIOError:
            yield False
        else:
            yield True


def _missing_from_build(cluster: Cluster) -> str | None:
    """Why no image can be built here, None if one can."""
    if shutil.which("apptainer", path=cluster.environment["PATH"]) is None:
        return f"no apptainer; {TESTBED} install-apptainer"
    return None if _python() else f"{BUILD} needs Python 3.11"


def _python() -> str | None:
    return sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")


@pytest.fixture(autouse=True)
def image_begins(request: pytest.FixtureRequest) -> None:
    """Begin to build the image beside the first test of the lane that needs the image."""
    if lane_of(request.node.nodeid) == IMAGE_LANE:
        request.getfixturevalue("build")


@pytest.fixture(scope="session")
def build(request, cluster, tmp_path_factory) -> Iterator[tuple[subprocess.Popen, Path] | None]:
    """The image on its way, which takes minutes: other tests wait for SLURM most of the time."""
    is_wanted = any("image" in item.fixturenames for item in request.session.items)
    if not is_wanted or GIVEN in os.environ or _missing_from_build(cluster):
        yield None
        return
    path = tmp_path_factory.mktemp("image") / "vmcjob-cpu.sif"
    environment = os.environ | cluster.environment | FAST | {"PYTHON": str(_python())}
    with subprocess.Popen(["nice", BUILD, path], env=environment) as process:
        yield process, path
        process.terminate()
    path.unlink(missing_ok=True)  # pytest would keep three of them


@pytest.fixture(scope="session")
def image(cluster, build) -> Path:
    """An image of this checkout for CPUs; or $VMCJOB_TEST_IMAGE."""
    _require(_missing_from_build(cluster))
    if GIVEN in os.environ:
        return Path(os.environ[GIVEN])
    process, path = build
    assert process.wait() == 0, f"{BUILD} failed"
    return path


@pytest.fixture(scope="session")
def gpu_image(cluster, tmp_path_factory) -> Iterator[Path]:
    """An image of this checkout for NVIDIA GPUs; or $VMCJOB_TEST_GPU_IMAGE.

    $VMCJOB_TEST_GPU_WHEELS names a folder of --save-wheels: without it, gigabytes are fetched.
    """
    _require(_missing_from_build(cluster))
    if GIVEN_FOR_GPUS in os.environ:
        yield Path(os.environ[GIVEN_FOR_GPUS])
        return
    path = tmp_path_factory.mktemp("gpu-image") / "vmcjob.sif"
    environment = os.environ | cluster.environment | FAST | {"PYTHON": str(_python())}
    wheels = os.environ.get(WHEELS_FOR_GPUS)
    given = ["--from-wheels", wheels] if wheels else []
    subprocess.run(["nice", BUILD, "--gpu", *given, path], env=environment, check=True)
    yield path
    path.unlink()  # pytest would keep three of them


@pytest.fixture
def room(cluster, tmp_path) -> Iterator[Room]:
    """A runs root on the cluster, whose jobs do not outlive the test."""
    cluster.undrain()  # SLURM drains a node where the end of an earlier test's job took too long
    room = Room(cluster, tmp_path)
    yield room
    room.close()


@pytest.fixture
def real_room(room) -> Room:
    """The same, but jobs calculate what users would."""
    return replace(room, is_real=True)


@pytest.fixture
def contained(room, image) -> Room:
    """A room whose site runs everything in an image."""
    return room.within(image)
