"""A run whose every number is known beforehand, and what a store of it must hold at any commit."""

import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES, SeriesName

LAYOUT = Layout(n_train=60, n_evaluate=40, n_walkers=5, n_electrons=2, n_snapshots=4)
ROWS = 10  # per commit
N_COMMITS = 10


def rows(phase: SeriesName, first: int, last: int) -> dict[str, np.ndarray]:
    """All columns for the steps first + 1 … last; no two numbers of a run are equal."""
    step = np.arange(first + 1, last + 1, dtype=float)
    return {
        name: np.sin(step * (column + 1)) - (phase == "evaluate")
        for column, name in enumerate(SERIES[phase])
    }


def walkers(step: int) -> np.ndarray:
    """Walkers as they would stand after an evaluation step."""
    return np.random.default_rng(step).normal(size=(5, 2, 3)).astype(np.float32)


def checkpoint(phase: str, step: int) -> Checkpoint:
    """A state that is a function of the step alone, in the dtypes that runs have."""
    rng = np.random.default_rng([step, len(phase)])
    arrays = {
        "params/dense/kernel": rng.normal(size=(3, 4)).astype(np.float32),
        "params/dense/bias": rng.normal(size=7),
        "optimizer/count": rng.integers(0, 2**32, size=2, dtype=np.uint32),
        "walkers": walkers(step),
        "width": np.array(rng.normal(), np.float32),
        "is_warm": np.array([True, False]),
    }
    return Checkpoint(phase, step, arrays)


def commit_number(k: int) -> Commit:
    """The k-th commit of the run: 60 training rows in all, then 40 of evaluation."""
    first, last = k * ROWS, (k + 1) * ROWS
    if last <= LAYOUT.n_train:
        return Commit(train=rows("train", first, last), checkpoint=checkpoint("train", last))
    first, last = first - LAYOUT.n_train, last - LAYOUT.n_train
    return Commit(
        evaluate=rows("evaluate", first, last),
        snapshots=[(last, walkers(last))],
        checkpoint=checkpoint("evaluate", last),
    )


def number_committed(store: RunStore) -> int:
    """How many commits of the run are in the store."""
    return (store.n_committed["train"] + store.n_committed["evaluate"]) // ROWS


def create(path: Path, run_id: str = "h2-0123") -> RunStore:
    """An empty store for the run."""
    return RunStore.create(
        path, run_id=run_id, spec_text="name = 'h2'\n", provenance={"jax": "0"}, layout=LAYOUT
    )


def go_on(store: RunStore, until: int = N_COMMITS) -> RunStore:
    """Commit from wherever the store stands up to commit number `until`."""
    for k in range(number_committed(store), until):
        store.commit(commit_number(k))
    return store


def assert_checkpoints_equal(found: Checkpoint, expected: Checkpoint) -> None:
    """Phase, step, names, dtypes and every bit."""
    assert (found.phase, found.step) == (expected.phase, expected.step)
    assert list(found.arrays) == list(expected.arrays)
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


def assert_series_hold(store: RunStore, n_commits: int) -> None:
    """The rows and snapshots are exactly those of the first `n_commits` commits."""
    n_train = min(n_commits * ROWS, LAYOUT.n_train)
    n_evaluate = n_commits * ROWS - n_train
    n_snapshots = n_evaluate // ROWS
    assert store.n_committed == {
        "train": n_train,
        "evaluate": n_evaluate,
        "snapshots": n_snapshots,
    }
    lengths: dict[SeriesName, int] = {"train": n_train, "evaluate": n_evaluate}
    for phase, length in lengths.items():
        series = store.series(phase)
        np.testing.assert_array_equal(series.pop("step"), np.arange(1, length + 1))
        expected = rows(phase, 0, length)
        assert set(series) == set(expected)
        for name, values in series.items():
            np.testing.assert_array_equal(values, expected[name])
    steps, r = store.snapshots()
    np.testing.assert_array_equal(steps, np.arange(ROWS, n_evaluate + 1, ROWS))
    for step, snapshot in zip(steps, r, strict=True):
        np.testing.assert_array_equal(snapshot, walkers(step))


def assert_holds(path: Path, n_commits: int) -> None:
    """Whoever opens the store sees exactly the first `n_commits` commits, bit for bit."""
    store = RunStore.open(path)
    assert_series_hold(store, n_commits)
    restored = store.checkpoint()
    if n_commits == 0:
        assert restored is None
        return
    assert restored is not None
    assert restored.warning is None
    assert_checkpoints_equal(restored.checkpoint, commit_number(n_commits - 1).checkpoint)


def write(path: Path) -> None:
    """What a worker does: create the store or take it up, and go on to the end."""
    go_on(RunStore.open(path, "a") if path.exists() else create(path))


def verify(path: Path, at_least: int) -> int:
    """The number of commits in the store, all of them verified; 0 where there is none yet."""
    if not path.exists():
        assert at_least == 0
        return 0
    count = number_committed(RunStore.open(path))
    assert count >= at_least
    assert_holds(path, count)
    return count


def kill_writers(path: Path, kills: int, seed: int) -> None:
    """Kill one writer after the other at random moments and verify the store after each.

    Must run in a process of its own, with one thread: each writer and each verification is a fork.
    """
    rng, count = random.Random(seed), 0
    for _ in range(kills):
        if count == N_COMMITS:
            shutil.rmtree(path)
            count = 0
        writer = _fork(lambda: write(path))
        time.sleep(rng.uniform(0.0, 0.2))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        at_least = count
        verifier = _fork(lambda at_least=at_least: verify(path, at_least))
        count = os.waitstatus_to_exitcode(os.waitpid(verifier, 0)[1])
        if not 0 <= count <= N_COMMITS:
            sys.exit(f"the store did not hold its commits (exit code {count})")


def _fork(task: Callable[[], int | None]) -> int:
    """The id of a new process that does `task` and exits with its number, 99 if it failed."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(task() or 0)
    except BaseException:  # nothing may return into the parent's code
        traceback.print_exc()
        os._exit(99)


if __name__ == "__main__":
    kill_writers(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
