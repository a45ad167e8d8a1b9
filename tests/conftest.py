"""Fixtures that several rooms share."""

import os

# Of tests side by side, each has a thread for linear algebra: threads that wait for one another
# while others compute keep a processor busy with waiting. Libraries ask when they are loaded.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import faulthandler
import gc
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import jax
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.lanes import is_of_cluster, lane_of, place_of
from tests.runs import Programs
from vmcjob.errors import UsageError
from vmcjob.run.startup import settle_libraries
from vmcjob.vmc.kfac_layers import KfacUnavailableError

# JAX's own derivatives of determinants, which tests compare with, run batches of triangular solves;
# with fewer threads than such batches, XLA:CPU deadlocks. XLA sizes its pool by this variable.
os.environ.setdefault("NPROC", "8")

# XLA reads its flags when it first compiles: what is computed here is what a worker computes.
settle_libraries()

# Workers compile the same programs again and again. Only they share what they compiled: a test that
# compiles in its own process has programs of its own.
jax.config.update("jax_enable_compilation_cache", False)

# Tracing makes objects by the million. Python would look for cycles so often that tests of compiled
# programs took a tenth longer.
gc.set_threshold(50_000)

# Most of the time goes into compiling what runs for milliseconds: LLVM may leave out its expensive
# passes, here and in the workers that tests start. Shipped jobs compile as they do for users.
jax.config.update("jax_disable_most_optimizations", True)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


class FileByFile(LoadScopeScheduling):
    """Give all tests of a file to one process, because they share compiled programs.

    The tests of the cluster are two lanes. Each lane has a process and a testbed. These processes
    mostly wait for SLURM, while the others compute.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # they are in a good order already

    def _split_scope(self, nodeid: str) -> str:
        """Tests of one scope go to one process."""
        file = nodeid.split("::")[0]
        return f"lane {lane_of(nodeid)}" if is_of_cluster(nodeid) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileByFile:
    """Deal the tests to the processes of `pytest -n`."""
    return FileByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """How thorough the tests are that have no natural end."""
    parser.addoption("--full-matrix", action="store_true", help="every case, and 10 kills of each")
    parser.addoption("--kills", type=int, help="disturbances of each kind of run, by default 2")
    parser.addoption("--cases", type=int, default=20_000, help="damaged specs")


@contextmanager
def skipped_without_kfac() -> Iterator[None]:
    """From JAX 0.11 on, kfac-jax does not work yet, and tests that need it cannot either."""
    try:
        yield
    except (KfacUnavailableError, UsageError) as error:
        is_refused = any(isinstance(e, KfacUnavailableError) for e in (error, error.__cause__))
        if not is_refused or jax.__version_info__ < (0, 11):
            raise
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Where a test says how long it takes, other processes compute: pytest-timeout is enough."""
    if item.get_closest_marker("timeout"):
        faulthandler.cancel_dump_traceback_later()
    if hasattr(item.config, "workerinput"):
        # Those of the cluster wait most of the time, and go before all others when they do not.
        with suppress(PermissionError):  # who is not root cannot take it back
            os.setpriority(os.PRIO_PROCESS, 0, 0 if is_of_cluster(item.nodeid) else 5)
    with skipped_without_kfac():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test may need K-FAC, as its fixtures may."""
    with skipped_without_kfac():
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Give all workers a place for compiled programs, which pytest-xdist hands on, and ^C."""
    # A shell has what it starts in the background ignore ^C, and so would every child.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="vmcjob-compiled-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


@pytest.fixture
def on_cpus() -> None:
    """What is tested is done for CPUs alone."""
    if (other := jax.default_backend()) != "cpu":
        pytest.skip(f"on a {other} it is not done")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of its own for each test: all runs of one user on one machine share its slots."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def kills_of(config: pytest.Config) -> int:
    """How often to kill each kind of run."""
    asked = config.getoption("--kills")
    return int(str(asked)) if asked is not None else 10 if config.getoption("--full-matrix") else 2


@pytest.fixture
def n_kills(request: pytest.FixtureRequest) -> int:
    """How often to kill each kind of run."""
    return kills_of(request.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Kills by fives, a test for each five: every test ends soon, however many are asked for."""
    if "first_kill" in metafunc.fixturenames:
        total = kills_of(metafunc.config)
        batches = [(first, min(5, total - first)) for first in range(0, total, 5)]
        metafunc.parametrize(("first_kill", "n_kills"), batches)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files go first, so that no process has to wait for another in the end.

    What takes hours and was not asked for is left out; the summary counts it as deselected.
    """
    if not config.getoption("--full-matrix"):
        left_out = [item for item in items if item.get_closest_marker("full_matrix")]
        items[:] = [item for item in items if item.get_closest_marker("full_matrix") is None]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
    n_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (*place_of(item.nodeid), -n_slow[item.path]))


@pytest.fixture
def n_cases(request: pytest.FixtureRequest) -> int:
    """How many damaged specs to read."""
    return int(str(request.config.getoption("--cases")))


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision for one test: comparisons with exact formulas need it."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Programs:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Programs(folder)
