"""A training that ends when its energy has come to rest."""

import random
from pathlib import Path

import numpy as np
import pytest

from tests.run import fake
from tests.run.harness import HELIUM, assert_same, finish, make_run, results, start
from tests.run.test_kills import assert_begins, is_killed, working_seconds
from vmcjob.errors import SpecError
from vmcjob.plan import make_longer, make_plan
from vmcjob.run.level import judge
from vmcjob.run.target import looks
from vmcjob.rundir import RunDir
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.records import create_run
from vmcjob.spec import parse_spec
from vmcjob.store import RunStore
from vmcjob.verdict.findings import MAX_FALL

CEILING = 6000
LEVEL = HELIUM.replace("[train]\nsteps = 60", f'[train]\nsteps = {CEILING}\nuntil = "level"')
LEVEL = LEVEL.replace('kind = "sr"', 'kind = "sr"\nplateau = 0.7')  # a short end, for speed
LEVEL = LEVEL.replace("flush_seconds = 0.001", "flush_seconds = 0.05")  # for speed, too

(SPEC,) = (point.spec for point in parse_spec(LEVEL, "he.toml").points)


def training(n: int, noise: float, fall: float, seed: int = 1) -> np.ndarray:
    """Energies that come down as 1 / step, by `fall` hartree over the last tenth of n steps."""
    steps = np.arange(1, n + 1)
    slope = fall / (1 / (0.9 * n) - 1 / n)
    return slope / steps + noise * np.random.default_rng(seed).normal(size=n)


def test_it_is_level_when_what_it_may_still_gain_is_surely_not_worth_a_word() -> None:
    """Neither while it falls, nor while the noise may hide that, nor at one look alone."""
    (n,) = [n for n in looks(10**4) if 1900 < n < 2000]
    assert judge(SPEC, training(n, 1e-3, 0.1 * MAX_FALL)).is_reached
    assert not judge(SPEC, training(n, 1e-3, 2 * MAX_FALL)).is_reached
    assert not judge(SPEC, training(n, 0.1, 0.1 * MAX_FALL)).is_reached
    was_falling = training(n, 1e-3, 0.1 * MAX_FALL)
    was_falling[: n * 7 // 10] += np.linspace(0.1, 0, n * 7 // 10)
    found = judge(SPEC, was_falling)
    assert found.fall + 3 * found.error <= MAX_FALL
    assert not found.is_reached


def test_of_a_training_too_short_to_tell_nothing_is_said() -> None:
    found = judge(SPEC, np.zeros(60))
    assert not found.is_reached
    assert (found.to_json()["fall"], found.to_json()["error"]) == (None, None)


def run_to_its_end(root: Path, text: str) -> RunDir:
    run = make_run(root, text)
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of the fake calculation; to be looked at only."""
    return run_to_its_end(tmp_path_factory.mktemp("runs"), LEVEL)


def n_trained(run: RunDir) -> int:
    return RunStore.open(run.store_path).n_committed["train"]


@pytest.mark.slow
def test_a_training_ends_by_itself_and_says_why(finished: RunDir, tmp_path: Path) -> None:
    """Its rows, and all that follow, are those of a run that is to take so many steps."""
    n = n_trained(finished)
    found = RunStore.open(finished.store_path).attrs["level"]
    assert found["step"] in looks(CEILING)[:-1]
    assert found["step"] < n == found["steps"] < CEILING
    assert found["is_reached"]
    assert found["fall"] + 3 * found["error"] <= MAX_FALL
    assert examine(finished).state is State.FINISHED
    plain = LEVEL.replace(f'steps = {CEILING}\nuntil = "level"', f"steps = {n}")
    assert_same(results(finished), results(run_to_its_end(tmp_path, plain)))


@pytest.mark.slow
def test_a_ceiling_that_comes_first_is_the_end(tmp_path: Path) -> None:
    run = make_run(tmp_path, LEVEL.replace(str(CEILING), "120"))
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert "is level" not in log
    assert n_trained(run) == 120
    assert "level" not in RunStore.open(run.store_path).attrs


@pytest.mark.slow
def test_a_run_killed_in_its_training_ends_where_it_would_have(
    finished: RunDir, tmp_path: Path, n_kills: int
) -> None:
    """After the same number of steps, with the same bits: only committed rows decide."""
    expected, seconds = results(finished), working_seconds(finished)
    moments, run = random.Random(16), make_run(tmp_path, LEVEL)
    for _ in range(n_kills):
        if is_killed(run, 1, fake.PROGRAM, moments.uniform(0, seconds / 2)):
            assert_begins(expected, run)
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert_same(results(run), expected)


@pytest.mark.slow
def test_what_was_trained_only_is_evaluated_from_where_it_ended(
    finished: RunDir, tmp_path: Path
) -> None:
    """Not from its ceiling, at which the learning rate would be another."""
    text = LEVEL.replace("[evaluate]\nsteps = 60", "[evaluate]\nsteps = 0")
    shorter = run_to_its_end(tmp_path / "runs", text)
    (task,) = make_plan(parse_spec(text, "he.toml")).tasks
    longer = create_run(tmp_path / "runs", "he.toml", make_longer(task, 60))
    code, log = finish(start(longer, program=fake.PROGRAM))
    assert code == 0, log
    assert n_trained(longer) == n_trained(shorter) < CEILING
    assert_same(results(longer), results(finished))


def test_only_steps_or_level_end_a_training() -> None:
    with pytest.raises(SpecError, match=r'train\.until: expected "steps" or "level", got "flat"'):
        parse_spec(LEVEL.replace('"level"', '"flat"'), "he.toml")
