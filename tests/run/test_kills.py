"""Runs killed at random moments, again and again.

By default the fake calculation on two devices; with `--full-matrix` that on one as well, and three
kinds of optimizers on one and on two, ten times each. Real workers are killed in other files too.
"""

import random
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.run import fake
from tests.run.harness import HELIUM, PROGRAM, assert_same, finish, make_run, results, start
from vmcjob.rundir import Activity, RunDir
from vmcjob.store import RunStore
from vmcjob.vmc.kfac_layers import load

SHORT = HELIUM.replace('kind = "sr"\ncg_iterations = 3\n', 'kind = "{}"\n').replace("60", "100")


MORE = [
    pytest.param(kind, n, program, marks=pytest.mark.full_matrix)
    for kind, n, program in (
        ("sr", 1, fake.PROGRAM),
        *((kind, n, PROGRAM) for kind in ("spring", "sr", "kfac") for n in (1, 2)),
    )
]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "n_devices", "program"), [("sr", 2, fake.PROGRAM), *MORE])
def test_a_run_killed_at_random_moments_ends_as_if_left_alone(
    kind: str,
    n_devices: int,
    program: tuple[str, ...],
    first_kill: int,
    n_kills: int,
    tmp_path: Path,
) -> None:
    """After every SIGKILL the store opens and holds nothing but what the undisturbed run computed.

    A run that gets to its end before it is killed has the undisturbed one's walkers, parameters and
    energies to the last bit, and another one begins; so does the last.
    """
    if kind == "kfac":
        load()  # or skip
    moments = random.Random(f"{kind} on {n_devices} after {first_kill}")
    for name in ("compiled", "undisturbed"):  # those to be killed need not compile either
        undisturbed = make_run(tmp_path / name, SHORT.format(kind))
        code, log = finish(start(undisturbed, n_devices, program))
        assert code == 0, log
    expected, seconds = results(undisturbed), working_seconds(undisturbed)
    run, kills = make_run(tmp_path / "0", SHORT.format(kind)), 0
    while kills < n_kills:
        if is_killed(run, n_devices, program, moments.uniform(0, seconds)):
            kills += 1
            assert_begins(expected, run)
        else:
            assert_same(results(run), expected)
            run = make_run(tmp_path / str(kills), SHORT.format(kind))
    code, log = finish(start(run, n_devices, program))
    assert code == 0, log
    assert_same(results(run), expected)


def working_seconds(run: RunDir) -> float:
    """How long a run took for its steps, compilation between its phases included."""
    return float(RunStore.open(run.store_path).series("evaluate")["wall_time"][-1])


def is_killed(run: RunDir, n_devices: int, program: tuple[str, ...], seconds: float) -> bool:
    """Kill a worker so long after it began to work; False if it was done by then."""
    worker = start(run, n_devices, program)
    while worker.poll() is None and not is_working(run, worker.pid):
        time.sleep(0.005)
    with suppress(subprocess.TimeoutExpired):
        worker.wait(seconds)
    worker.send_signal(signal.SIGKILL)
    code, log = finish(worker)
    assert code in (0, -signal.SIGKILL), log
    return code != 0


def is_working(run: RunDir, pid: int) -> bool:
    """Whether this worker has said that it compiles, or more."""
    beat = run.read_heartbeat()
    return beat is not None and beat.pid == pid and beat.phase is not Activity.STARTING


def assert_begins(expected: Mapping[str, np.ndarray], run: RunDir) -> None:
    """All committed rows are those of the undisturbed run, and a checkpoint is intact."""
    store = RunStore.open(run.store_path)
    store.checkpoint()
    for phase in ("train", "evaluate"):
        for name, values in store.series(phase).items():
            if name != "wall_time":
                whole = expected[f"{phase}/{name}"]
                np.testing.assert_array_equal(values, whole[: len(values)], err_msg=name)
