"""One run shared by several processes, here all on one machine: on a cluster, one on each node."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.matrix import rest
from tests.run import fake
from tests.run.harness import (
    PROGRAM,
    assert_same,
    finish,
    free_address,
    has_committed,
    make_run,
    results,
    signal_when,
    start,
    start_ranks,
)
from tests.run.test_rollback import unlucky
from vmcjob.protocol.rank import Rank
from vmcjob.run.rollback import Cause
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
from vmcjob.store import RunStore

pytestmark = pytest.mark.timeout(900)

# Small, since every worker compiles it anew; long enough to be interrupted.
HYDROGEN = """
name = "h"
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[ansatz]
determinants = 1
layers = 1
one_electron_width = 4
two_electron_width = 4
jastrow = false
[sampler]
walkers = 16
steps = 2
warmup = 3
[optimizer]
kind = "sr"
cg_iterations = 3
[numerics]
dtype = "float64"    # an update multiplies what the order of sums does by the condition of S + λ
[pretrain]
steps = 0
[train]
steps = 36
[evaluate]
steps = 60
warmup = 3
[output]
flush_seconds = 0.001
snapshots = 2
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """One run of two ranks with two devices each, from beginning to end."""
    run = make_run(tmp_path_factory.mktemp("undisturbed"), HYDROGEN)
    first, second = start_ranks(run, 2, 2)
    assert finish(first)[0] == 0
    assert finish(second)[0] == 0
    return run


def outcome_of(run: RunDir) -> OutcomeRecord:
    outcome = run.read_outcome()
    assert outcome is not None
    return outcome


def n_committed(run: RunDir) -> dict[str, int]:
    return RunStore.open(run.store_path).n_committed


@pytest.mark.slow
def test_ranks_compute_what_one_process_does_with_as_many_devices(
    undisturbed: RunDir, tmp_path: Path
) -> None:
    """Same walkers, same random numbers, same updates; only the order of sums may differ.

    Catches devices that are counted within a rank, which would give two of them the same numbers.
    """
    run = make_run(tmp_path, HYDROGEN)
    assert finish(start(run, 4))[0] == 0
    alone, together = results(run), results(undisturbed)
    assert alone.keys() == together.keys()
    for name in ("energy", "variance", "grad_norm", "update_norm"):
        np.testing.assert_allclose(
            together[f"train/{name}"][:2], alone[f"train/{name}"][:2], rtol=1e-5, err_msg=name
        )
    means = [found["evaluate/energy"].mean() for found in (alone, together)]
    errors = [found["evaluate/energy"].std() / np.sqrt(60) for found in (alone, together)]
    assert abs(means[0] - means[1]) < 5 * np.hypot(*errors)
    provenance = RunStore.open(undisturbed.store_path).attrs["provenance"]
    assert provenance["devices"] == "2 ranks of 2 × cpu"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="there are no such policies here")
def test_no_thread_of_a_rank_that_waits_pushes_another_aside(tmp_path: Path) -> None:
    """With a core each, exchanges of two ranks would take forty times as long."""
    run = make_run(tmp_path, HYDROGEN.replace("steps = 60", "steps = 100000"))
    first, second = start_ranks(run, 1, 1, program=fake.PROGRAM)
    policies: dict[int, int] = {}
    is_at_work = has_committed(run, "evaluate", 1)

    def are_read() -> bool:
        if is_at_work():
            tasks = Path(f"/proc/{first.pid}/task").iterdir()
            policies.update((n := int(task.name), os.sched_getscheduler(n)) for task in tasks)
        return first.pid in policies

    assert signal_when(first, signal.SIGTERM, are_read) == 75
    finish(second)
    assert policies[first.pid] == os.SCHED_BATCH
    assert Counter(policies.values()).most_common(1)[0][0] == os.SCHED_BATCH  # but for older ones


@pytest.mark.slow
@pytest.mark.parametrize("program", [fake.PROGRAM, *rest((PROGRAM,))], ids=["fake", "real"])
def test_a_killed_rank_takes_the_others_down_and_the_run_continues(
    program: Sequence[str], tmp_path: Path
) -> None:
    """They cannot go on without its walkers, and must not wait for it for ever."""
    undisturbed = make_run(tmp_path / "undisturbed", HYDROGEN)
    for worker in start_ranks(undisturbed, 2, 2, program=program):
        assert finish(worker)[0] == 0
    run = make_run(tmp_path / "killed", HYDROGEN)
    first, second = start_ranks(run, 2, 2, program=program)
    assert signal_when(second, signal.SIGKILL, has_committed(run, "train", 5)) == -signal.SIGKILL
    since = time.monotonic()
    code, log = finish(first)
    assert time.monotonic() - since < 60.0
    assert code in (1, -signal.SIGABRT), log  # XLA may end the process in the middle of a sum
    outcome = run.read_outcome()
    assert (outcome is None) == (code < 0)
    if outcome is not None:
        assert outcome.outcome is Outcome.FAILED
        assert outcome.message.startswith("another rank of the run has ended or cannot be reached")
    assert n_committed(run)["evaluate"] < 60
    for worker in start_ranks(run, 2, 2, program=program):
        assert finish(worker)[0] == 0
    assert_same(results(run), results(undisturbed))


@pytest.mark.slow
def test_when_the_first_rank_is_killed_the_others_end(tmp_path: Path) -> None:
    """There is nobody left who could write; the run is dead."""
    run = make_run(tmp_path, HYDROGEN.replace("steps = 60", "steps = 100000"))
    first, second = start_ranks(run, 1, 1, program=fake.PROGRAM)
    assert signal_when(first, signal.SIGKILL, has_committed(run, "train", 1)) == -signal.SIGKILL
    since = time.monotonic()
    assert finish(second)[0] != 0
    assert time.monotonic() - since < 60.0
    assert run.read_outcome() is None


@pytest.mark.slow
def test_a_stop_asked_of_one_rank_stops_all_at_the_same_step(tmp_path: Path) -> None:
    """With a commit; and another number of ranks and devices goes on from there."""
    run = make_run(tmp_path, HYDROGEN.replace("steps = 36", "steps = 100000"))
    first, second = start_ranks(run, 1, 1, program=fake.PROGRAM)
    assert signal_when(second, signal.SIGTERM, has_committed(run, "train", 5)) == 0
    assert finish(first)[0] == 75
    done = n_committed(run)["train"]
    assert outcome_of(run).outcome is Outcome.PREEMPTED
    assert outcome_of(run).message == f"stopped by SIGTERM; continues from train step {done}/100000"
    again = start(run, program=fake.PROGRAM)
    assert signal_when(again, signal.SIGTERM, has_committed(run, "train", done + 1)) == 75
    assert outcome_of(run).outcome is Outcome.PREEMPTED


@pytest.mark.slow
@pytest.mark.parametrize(
    "cause",
    [
        # Lack of memory: the next test, and test_rollback.py.
        pytest.param(cause, marks=() if cause is Cause.EXPLOSION else pytest.mark.full_matrix)
        for cause in Cause
    ],
)
def test_ranks_go_back_to_the_last_commit_together(tmp_path: Path, cause: Cause) -> None:
    """One of them has a store to look it up in; the others have what they were told."""
    run = make_run(tmp_path, HYDROGEN)
    phase = "train" if cause is Cause.EXPLOSION else "evaluate"
    program = unlucky(phase, 30, cause)
    for worker in start_ranks(run, 1, 1, program=program):
        assert finish(worker)[0] == 0
    (rollback,) = RunStore.open(run.store_path).rollbacks
    assert (rollback["cause"], rollback["phase"]) == (cause, phase)
    assert n_committed(run)["evaluate"] == 60


@pytest.mark.slow
def test_a_rank_without_memory_ends_the_run_where_the_others_have_enough(tmp_path: Path) -> None:
    """They are in the middle of the step, waiting for it, and go on when submitted again."""
    run = make_run(tmp_path, HYDROGEN)
    programs = fake.PROGRAM, unlucky("evaluate", 30, Cause.OUT_OF_MEMORY)
    address = free_address()
    first, second = (
        start(run, 1, program, Rank(index, 2, address)) for index, program in enumerate(programs)
    )
    (code, log), (_, others) = finish(second), finish(first)
    assert code == 1
    assert "FAILED out of memory" in log
    assert outcome_of(run).outcome is Outcome.FAILED, others
    assert RunStore.open(run.store_path).rollbacks == ()
    assert 0 < n_committed(run)["evaluate"] <= 30


@pytest.mark.slow
def test_a_rank_that_falls_silent_is_not_waited_for(tmp_path: Path) -> None:
    """As when its node is gone without a word, and always where collectives run on GPUs."""
    run = make_run(tmp_path, HYDROGEN.replace("steps = 60", "steps = 100000"))
    first, second = start_ranks(run, 1, 1, program=fake.PROGRAM)
    freeze_when(second, run)
    since = time.monotonic()
    assert finish(first)[0] != 0
    assert time.monotonic() - since < 60.0
    second.kill()
    finish(second)


def freeze_when(worker: subprocess.Popen[str], run: RunDir) -> None:
    has_begun = has_committed(run, "train", 1)
    while not has_begun():
        assert worker.poll() is None
        time.sleep(0.01)
    worker.send_signal(signal.SIGSTOP)


def test_ranks_with_different_numbers_of_devices_are_refused_with_a_sentence(
    tmp_path: Path,
) -> None:
    """JAX itself would end in an assertion."""
    run = make_run(tmp_path, HYDROGEN)
    first, second = start_ranks(run, 1, 2)
    assert [finish(first)[0], finish(second)[0]] == [1, 1]
    assert outcome_of(run).message == (
        "every rank needs as many devices as the others, got rank 0: 1, rank 1: 2; "
        "ask for nodes that are alike"
    )


def test_a_rank_that_cannot_be_is_refused_with_a_sentence(tmp_path: Path) -> None:
    run = make_run(tmp_path, HYDROGEN)
    program = ("-m", "vmcjob", "run", "--rank", "2", "--ranks", "2")
    code, log = finish(start(run, program=program))
    assert code == 2
    assert log == "--rank 2: expected less than --ranks, which is 2; ranks are counted from 0\n"
