"""A real worker in a real process: make a run directory, start it, hurt it, read what it left."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.forks import WORKERS, Fork
from vmcjob.plan import make_plan
from vmcjob.protocol.rank import ALONE, Rank
from vmcjob.rundir import Record, RunDir
from vmcjob.spec import dump_spec, parse_spec
from vmcjob.store import RunStore, peek

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 200.0
PROGRAM = ("-m", "vmcjob", "run")

# Flushes at every block, so that there is something to lose and something to keep.
HELIUM = """
name = "he"
[system]
atoms = [["He", 0.0, 0.0, 0.0]]
[ansatz]
determinants = 1
layers = 1
one_electron_width = 8
[sampler]
walkers = 64
steps = 2
warmup = 5
[optimizer]
kind = "sr"
cg_iterations = 3
[pretrain]
steps = 0
[train]
steps = 60
[evaluate]
steps = 60
warmup = 5
[output]
flush_seconds = 0.001
snapshots = 3
"""


def make_run(root: Path, text: str = HELIUM) -> RunDir:
    """The run directory of a spec with a single run."""
    (task,) = make_plan(parse_spec(text, "test.toml")).tasks
    record = Record(
        run_id=task.run_id,
        name=task.name,
        point=task.point,
        seed=task.seed,
        science_sha256=task.science_sha256,
        source="test.toml",
        vmcjob_version="test",
    )
    return RunDir.create(root, record, dump_spec(task.spec))


def start(
    run: RunDir,
    n_devices: int = 1,
    program: Sequence[str] = PROGRAM,
    rank: Rank = ALONE,
    *,
    is_fork: bool = True,
) -> subprocess.Popen[str]:
    """The worker of a run, going.

    A fork has imported JAX before; a worker that tells JAX something by its environment must not.
    """
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={n_devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [sys.executable, *program, str(run.path), *rank.options()]
    if is_fork:
        return Fork(WORKERS, command, env=environment, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def start_ranks(
    run: RunDir, *n_devices: int, program: Sequence[str] = PROGRAM
) -> list[subprocess.Popen[str]]:
    """The workers of a run on several nodes, all of them this machine, with so many devices."""
    address = free_address()
    ranks = [Rank(index, len(n_devices), address) for index in range(len(n_devices))]
    return [start(run, n, program, rank) for n, rank in zip(n_devices, ranks, strict=True)]


def free_address() -> str:
    """Where ranks can meet: a port that nobody uses, and nobody will take so soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def finish(worker: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and log of a worker that ends by itself."""
    _, log = worker.communicate(timeout=PATIENCE_S)
    return worker.returncode, log


def signal_when(
    worker: subprocess.Popen[str], number: signal.Signals, is_time: Callable[[], bool]
) -> int:
    """Send a signal as soon as the condition holds; the worker's exit code."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_time() and worker.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    worker.send_signal(number)
    return finish(worker)[0]


def has_committed(run: RunDir, phase: str, n_steps: int) -> Callable[[], bool]:
    """Whether a run's store holds so many steps of a phase yet."""

    def is_reached() -> bool:
        found = peek.attributes(run.store_path)  # often asked: quicker than to open the store
        return found is not None and found["n_committed"][phase] >= n_steps

    return is_reached


def results(run: RunDir) -> Mapping[str, np.ndarray]:
    """All that a run computed, by name: series, snapshots, final state; without the clock."""
    store = RunStore.open(run.store_path)
    found = {
        f"{phase}/{name}": values
        for phase in ("train", "evaluate")
        for name, values in store.series(phase).items()
        if name != "wall_time"
    }
    restored = store.checkpoint()
    assert restored is not None
    steps, walkers = store.snapshots()
    return (
        found | {"snapshots/step": steps, "snapshots/r": walkers} | dict(restored.checkpoint.arrays)
    )


def assert_same(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> None:
    """Equal names, equal bits."""
    assert left.keys() == right.keys()
    for name, values in left.items():
        np.testing.assert_array_equal(values, right[name], err_msg=name)
