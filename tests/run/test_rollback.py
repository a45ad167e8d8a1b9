"""Not finite, or out of memory: back to the last commit, and on from there more carefully."""

import signal
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from tests.matrix import rest
from tests.run import fake
from tests.run.harness import (
    HELIUM,
    assert_same,
    finish,
    has_committed,
    make_run,
    results,
    signal_when,
    start,
)
from vmcjob.run.optimizer import learning_rate
from vmcjob.run.rollback import FIRST_TRY, Cause, RetryPolicy, Rollback
from vmcjob.rundir import RunDir
from vmcjob.spec import Sr, parse_spec
from vmcjob.store import RunStore
from vmcjob.vmc.phases import Phase

# A worker in which one step of a phase goes wrong for as long as no care is taken.
UNLUCKY = """
import sys
kind, phase, index, cause = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
import jax
from tests.run import fake
from vmcjob.cli import main
from vmcjob.vmc import devices
from vmcjob.vmc.loop import Vmc

owner = {"real": Vmc, "fake": fake.HarmonicWell}[kind]

make_step = getattr(owner, f"{phase}_step")

def make_unlucky_step(self):
    step = make_step(self)
    def unlucky(state, now):
        if now == index and cause == "out of memory" and self.chunk_divisor == 1:
            jax.numpy.zeros(2**45).block_until_ready()  # no machine has it; XLA says so
        state, info = step(state, now)
        info = devices.unreplicate(info)
        if now == index and cause == "not finite" and self.retry == 0:
            info = info._replace(is_finite=False)
        if index <= now < index + 5 and cause == "explosion" and self.retry == 0:
            info = info._replace(median=info.median + 100.0)
        return state, devices.replicate(info)
    return unlucky

setattr(owner, f"{phase}_step", make_unlucky_step)
if kind == "fake":
    fake.install()
sys.argv = ["vmcjob", "run", *sys.argv[5:]]
main()
"""


def unlucky(phase: str, index: int, cause: Cause, kind: str = "fake") -> tuple[str, ...]:
    """The program of a worker whose step `index` of a phase goes wrong once."""
    return "-c", UNLUCKY, kind, phase, str(index), cause


@pytest.fixture(scope="module")
def retried(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run whose first training step was not finite."""
    run = make_run(tmp_path_factory.mktemp("retried"))
    code, log = finish(start(run, program=unlucky("train", 0, Cause.NOT_FINITE)))
    assert code == 0, log
    assert "not finite in train step 1; back to train step 0" in log
    return run


@pytest.mark.slow
def test_a_step_that_is_not_finite_is_done_again_with_half_the_rate(retried: RunDir) -> None:
    """The run finishes, nothing in its store is not finite, and the store says what happened."""
    store = RunStore.open(retried.store_path)
    rollbacks = [Rollback.from_json(record) for record in store.rollbacks]
    assert rollbacks == [Rollback(Cause.NOT_FINITE, Phase.TRAIN, 1, Phase.TRAIN, 0)]
    series = store.series("train")
    assert all(np.isfinite(values).all() for values in series.values())
    rate = learning_rate(parse_spec(HELIUM, "test.toml").points[0].spec)
    np.testing.assert_allclose(series["learning_rate"], 0.5 * rate(jnp.arange(60)), rtol=1e-5)


@pytest.mark.slow
def test_a_run_killed_after_a_rollback_resumes_to_the_same_bits(
    retried: RunDir, tmp_path: Path
) -> None:
    """What care is to be taken stands in the store, not in the worker's memory."""
    run = make_run(tmp_path)
    worker = start(run, program=unlucky("train", 0, Cause.NOT_FINITE))
    assert signal_when(worker, signal.SIGKILL, has_committed(run, "train", 7)) == -signal.SIGKILL
    assert finish(start(run, program=fake.PROGRAM))[0] == 0
    assert_same(results(run), results(retried))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fake", *rest("real")])
def test_a_lack_of_memory_in_evaluation_is_met_with_smaller_chunks(
    kind: str, tmp_path: Path
) -> None:
    """The series are as long as planned; training, done before, is not repeated."""
    run = make_run(tmp_path)
    code, log = finish(start(run, program=unlucky("evaluate", 30, Cause.OUT_OF_MEMORY, kind)))
    assert code == 0, log
    store = RunStore.open(run.store_path)
    (rollback,) = (Rollback.from_json(record) for record in store.rollbacks)
    assert (rollback.cause, rollback.phase) == (Cause.OUT_OF_MEMORY, Phase.EVALUATE)
    assert rollback.to_phase is Phase.EVALUATE
    assert rollback.to_step <= 30
    assert store.n_committed["evaluate"] == 60
    assert np.isfinite(store.series("evaluate")["energy"]).all()


def test_care_grows_with_every_rollback() -> None:
    """Half the step each time, a quarter of its square; memory has nothing to do with it."""
    spec = parse_spec(HELIUM, "test.toml").points[0].spec
    wrong = Rollback(Cause.NOT_FINITE, Phase.TRAIN, 1, Phase.TRAIN, 0)
    short = Rollback(Cause.OUT_OF_MEMORY, Phase.TRAIN, 1, Phase.TRAIN, 0)
    policy = RetryPolicy.after([wrong, short, wrong])
    assert policy == RetryPolicy(retries=2, chunk_divisor=2)
    careful = policy.of_steps(spec)
    assert isinstance(careful.optimizer, Sr)
    assert isinstance(spec.optimizer, Sr)
    assert careful.optimizer.learning_rate == spec.optimizer.learning_rate / 4
    assert careful.optimizer.norm_constraint == spec.optimizer.norm_constraint / 16
    assert careful.pretrain.learning_rate == spec.pretrain.learning_rate / 4
    assert FIRST_TRY.of_steps(spec) == spec
