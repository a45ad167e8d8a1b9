"""An evaluation that ends when its energy is known as well as was asked for."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from tests.cli.shell import Shell
from tests.matrix import rest
from tests.run import fake
from tests.run.harness import HELIUM, PROGRAM, assert_same, finish, make_run, results, start
from tests.run.test_kills import assert_begins, is_killed, working_seconds
from tests.runs import wait_until
from tests.test_stats import ar1
from vmcjob.cli.longer import Extension
from vmcjob.errors import SpecError, UsageError
from vmcjob.plan import make_plan
from vmcjob.results.table import Row, RunResult, make_table
from vmcjob.run.target import Finding, end_for, forecast, judge, looks
from vmcjob.rundir import RunDir, select
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.records import create_run
from vmcjob.spec import Evaluate, parse_spec
from vmcjob.stats import Estimate, estimate
from vmcjob.store import RunStore

N_SERIES = 250
SKEW = 1 / 8
MakeSeries = Callable[[int, np.random.Generator, int], np.ndarray]
CEILING = 8000
TARGET = 0.003  # hartree, of 64 walkers; reached long before the ceiling
PRECISE = HELIUM.replace(
    "[evaluate]\nsteps = 60", f"[evaluate]\nsteps = {CEILING}\ntarget_error = {{}}"
).replace("flush_seconds = 0.001", "flush_seconds = 0.05")  # still commits between any two looks


def phi(tau: float) -> float:
    """Of the AR(1) chain with an integrated autocorrelation time τ = (1 + φ) / (2 (1 - φ))."""
    return (2 * tau - 1) / (2 * tau + 1)


def fast(n: int, rng: np.random.Generator, chains: int) -> np.ndarray:
    return ar1(phi(5), n, rng, chains)


def with_a_slow_mode(n: int, rng: np.random.Generator, chains: int) -> np.ndarray:
    """τ = 5, and a mode of τ = 50 that is as large."""
    return math.sqrt(0.5) * (fast(n, rng, chains) + ar1(phi(50), n, rng, chains))


def skewed(n: int, rng: np.random.Generator, chains: int) -> np.ndarray:
    """Where it is high, it fluctuates more: what could favour low means at the first small error.

    A log-normal variable exp(s g), of mean √q and variance q (q - 1) with q = exp(s²). With s = 1/8
    it is as skewed as the mean of some twenty walkers, of which each has s = 1/2.
    """
    square = math.exp(SKEW**2)
    centred = np.exp(SKEW * fast(n, rng, chains)) - math.sqrt(square)
    return centred / math.sqrt(square * (square - 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make_series", "targets", "length"),
    [
        (skewed, (0.1, 0.07), 8_000),
        *rest((fast, (0.1, 0.07, 0.05), 16_000), (with_a_slow_mode, (0.1, 0.07), 32_000)),
    ],
)
def test_stopping_favours_neither_low_energies_nor_small_errors(
    make_series: MakeSeries, targets: tuple[float, ...], length: int, monkeypatch
) -> None:
    """Two thirds of the stopped means are within one quoted error of the truth, and their mean is.

    Of 250 series, coverage is known to 3 % and the bias to 0.064 of the error. Stopping at the
    first small error of 60, 85, 120, … steps has a coverage of 56 % with the slow mode, at 0.2.
    """
    rng = np.random.default_rng(17)
    ends: dict[float, list[tuple[float, float]]] = {target: [] for target in targets}
    for _ in range(10):
        for series in make_series(length, rng, N_SERIES // 10):
            monkeypatch.setattr("vmcjob.run.target.estimate", remembering(estimate))
            step = 0
            for target in targets:
                found = stop(series, target, step)
                step = found.step
                assert found.is_reached
                assert found.error <= target
                ends[target].append((float(series[: found.step].mean()), found.error))
    for target in targets:
        means, errors = np.array(ends[target]).T
        assert 0.62 <= np.mean(np.abs(means) < errors) <= 0.74, target
        assert abs(np.mean(means)) < 0.14 * np.mean(errors), target


def remembering(estimate: Callable[..., Estimate]) -> Callable[..., Estimate]:
    """Of beginnings of one series; each is looked at several times."""
    known: dict[int, Estimate] = {}

    def of_beginning(energy: np.ndarray, variance: np.ndarray) -> Estimate:
        if len(energy) not in known:
            known[len(energy)] = estimate(energy, variance=variance)
        return known[len(energy)]

    return of_beginning


def stop(series: np.ndarray, target: float, first: int) -> Finding:
    """What a run would find where it ends; not before a step at which it missed a larger target."""
    variance = np.ones(len(series))
    ends = [n for n in looks(len(series)) if n >= first]
    findings = (judge(series[:n], variance[:n], target) for n in ends)
    found = next(findings)
    while not found.is_reached and found.step < len(series):
        found = next(findings)
    return found


def test_where_an_evaluation_may_end_does_not_hang_on_its_ceiling() -> None:
    """Of two ceilings, one run is the beginning of the other; and it is asked for rarely."""
    short, long = looks(5000), looks(10**6)
    assert (short[-1], long[-1]) == (5000, 10**6)
    assert short[:-1] == long[: len(short) - 1]
    ratios = np.array(long[1:-1]) / np.array(long[:-2])
    np.testing.assert_allclose(ratios, math.sqrt(2), rtol=1e-3)
    assert looks(60) == [60]


def test_a_small_error_bar_that_means_nothing_ends_no_evaluation() -> None:
    """Of a series that drifts, of walkers that are stuck, of too few samples; or of half of it."""
    rng, n = np.random.default_rng(3), 1920
    quiet, ones = rng.normal(size=n), np.ones(n)
    assert judge(quiet, ones, 0.1).is_reached
    assert not judge(quiet + np.linspace(0, 1, n), ones, 0.1).is_reached
    assert not judge(np.zeros(n), ones, 0.1).is_reached
    assert judge(np.zeros(n), np.zeros(n), 0.1).is_reached
    assert not judge(np.repeat(quiet[:20], n // 20), ones, 10.0).is_reached
    was_worse = np.concatenate([5 * quiet[: n // 4], quiet[n // 4 :]])
    found = judge(was_worse, ones, 0.075)
    assert found.error <= 0.075
    assert not found.is_reached


def row_of(run: RunDir) -> Row:
    """The run's row in the table of `aggregate`."""
    record = run.read_record()
    about = (record.run_id, record.name, record.point, record.seed, record.science_sha256)
    table = make_table([RunResult(*about, "FINISHED", run.store_path)])
    assert not table.excluded
    return table.rows[0]


def run_to_its_end(root: Path, text: str, program: tuple[str, ...] = fake.PROGRAM) -> RunDir:
    run = make_run(root, text)
    code, log = finish(start(run, program=program))
    assert code == 0, log
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of the fake calculation that has its target error; to be looked at only."""
    return run_to_its_end(tmp_path_factory.mktemp("runs"), PRECISE.format(TARGET))


@pytest.mark.slow
def test_a_run_ends_by_itself_with_the_error_that_was_asked_for(
    finished: RunDir, tmp_path: Path
) -> None:
    """Its rows are those of a run that is to take so many steps."""
    n = assert_precise(finished)
    found = results(finished)
    expected = results(run_to_its_end(tmp_path, of_steps(n)))
    for name in found.keys() - {"snapshots/step", "snapshots/r"}:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.full_matrix
def test_a_run_of_helium_ends_by_itself(tmp_path: Path) -> None:
    """With all that the fake calculation leaves out."""
    assert_precise(run_to_its_end(tmp_path, PRECISE.format(TARGET), PROGRAM))


def of_steps(n: int) -> str:
    """The spec of a run that takes so many steps, whatever its error."""
    return HELIUM.replace("[evaluate]\nsteps = 60", f"[evaluate]\nsteps = {n}")


def assert_precise(run: RunDir) -> int:
    """A finished run has the target error, by what `aggregate` and `show` know; after n steps."""
    store = RunStore.open(run.store_path)
    n = store.n_committed["evaluate"]
    assert n in looks(CEILING)[:-1]
    row = row_of(run)
    assert row.verdict == "unsettled"  # the statistics are sound, a short training is not
    assert row.n_steps == n
    assert row.error <= TARGET
    found = store.attrs["target"]
    assert found == {"target": TARGET, "step": n, "error": row.error, "is_reached": True}
    seen = examine(run)
    assert (seen.state, seen.step, seen.n_steps) == (State.FINISHED, n, n)
    assert seen.message.startswith(f"target_error {TARGET:g} reached: the error is ")
    assert f" hartree after {n} steps" in seen.message
    return n


@pytest.mark.slow
def test_a_ceiling_that_comes_first_is_told_of(tmp_path: Path) -> None:
    """The run is finished, in the table, and says that its error is not what was asked for."""
    run = run_to_its_end(tmp_path, PRECISE.format(1e-9).replace(str(CEILING), "100"))
    assert row_of(run).n_steps == 100
    message = examine(run).message
    assert message.startswith("target_error 1e-09 not reached within evaluate.steps: the error is ")
    assert " hartree after 100 steps" in message


@pytest.mark.slow
def test_a_run_killed_on_its_way_to_a_target_ends_where_it_would_have(
    finished: RunDir, tmp_path: Path, n_kills: int
) -> None:
    """After the same number of steps, with the same bits: only committed rows decide."""
    expected, seconds = results(finished), working_seconds(finished)
    moments, run = random.Random(16), make_run(tmp_path, PRECISE.format(TARGET))
    for _ in range(n_kills):
        if is_killed(run, 1, fake.PROGRAM, moments.uniform(0, seconds / 2)):
            assert_begins(expected, run)
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert_same(results(run), expected)
    assert row_of(run).error == row_of(finished).error <= TARGET


@pytest.mark.slow
def test_a_finished_run_goes_on_to_a_smaller_error(finished: RunDir, tmp_path: Path) -> None:
    """Or for so many steps more than it has, as a run of so many steps; or not at all."""
    shell = Shell(tmp_path)
    copytree(finished.path, shell.runs / finished.path.name)
    n, error = row_of(finished).n_steps, row_of(finished).error

    def again(*options: str) -> str:
        done = shell.run("resume", "he", *options, "--dry-run", "--json")
        assert done.returncode == 0, done.stderr
        (item,) = json.loads(done.stdout)["submitted"]
        return item["run_id"]

    assert again("--more-steps", "10") == run_id_of(of_steps(n + 10))
    smaller = PRECISE.format(0.001).replace(str(CEILING), str(n + 10))
    assert again("--target-error", "0.001", "--more-steps", "10") == run_id_of(smaller)
    ceiling = math.ceil(4 * n * (error / 0.001) ** 2)
    smaller = PRECISE.format(0.001).replace(str(CEILING), str(ceiling))
    assert again("--target-error", "0.001") == run_id_of(smaller)
    for value, words in (
        ("0.01", "hartree; --target-error 0.01 asks for no more"),
        ("0", "above 0"),
    ):
        refused = shell.run("resume", "he", "--target-error", value)
        assert refused.returncode == UsageError.exit_code
        assert words in refused.stderr


@pytest.mark.slow
def test_what_goes_on_to_a_smaller_error_has_all_rows_of_before(
    finished: RunDir, tmp_path: Path
) -> None:
    """And ends at its own target; the name means the longer one from then on."""
    root = tmp_path / "runs"
    shorter = RunDir(copytree(finished.path, root / finished.path.name))
    (task,) = make_plan(parse_spec(PRECISE.format(TARGET), "he.toml")).tasks
    task = Extension(600, 0.0024).make_longer(shorter, task)
    longer = create_run(root, "he.toml", task)
    code, log = finish(start(longer, program=fake.PROGRAM))
    assert code == 0, log
    assert_begins(results(longer), shorter)
    assert select(root, ["he"]) == [longer]
    row = row_of(longer)
    assert row.n_steps > row_of(shorter).n_steps
    assert row.error <= 0.0024
    assert examine(longer).message.startswith("target_error 0.0024 reached")


def run_id_of(text: str) -> str:
    (task,) = make_plan(parse_spec(text, "he.toml")).tasks
    return task.run_id


def test_a_target_needs_steps() -> None:
    with pytest.raises(SpecError, match=r"evaluate\.target_error: steps is 0, so that there would"):
        parse_spec(PRECISE.format(1e-4).replace(str(CEILING), "0"), "he.toml")


def test_a_target_of_the_pool_is_shared_out_among_its_seeds() -> None:
    """Four times as many seeds, each with twice the error, know their mean as well."""
    pool = PRECISE.format(1e-4).replace("[evaluate]", '[evaluate]\ntarget_of = "pool"')
    for n_seeds in (1, 4):
        text = f"seeds = {list(range(n_seeds))}\n" + pool.replace("seed = 0\n", "")
        points = parse_spec(text, "he.toml").points
        found = {
            (point.spec.evaluate.target_error, point.spec.evaluate.target_of) for point in points
        }
        assert found == {(1e-4 * math.sqrt(n_seeds), "run")}
    assert run_id_of(pool) == run_id_of(PRECISE.format(1e-4)), "of one seed it is the run's own"
    with pytest.raises(SpecError, match=r"evaluate\.target_of: there is no target; expected"):
        parse_spec(pool.replace("target_error = 0.0001", ""), "he.toml")


def test_the_end_of_an_evaluation_is_forecast_from_its_error() -> None:
    """Where two lengths in a row will have the target; the ceiling if none has; None at first."""
    options = Evaluate(steps=10_000, target_error=1e-3)
    assert forecast(options, 479, 1e-3) is None
    assert forecast(options, 600, None) is None
    assert forecast(Evaluate(steps=10_000), 600, 1e-3) is None
    assert forecast(options, 480, 2e-3) == 2715  # 1920 steps are enough, and it is asked again
    assert forecast(options, 480, 1e-4) == 679
    assert forecast(options, 5000, 1e-4) == 5431
    assert forecast(options, 480, 1e-2) == 10_000
    lengths = [end_for(1600, 10_000), end_for(1600, 1800), end_for(300, 400), end_for(1, 600)]
    assert lengths == [2715, None, 400, 600]  # below the first length, the ceiling alone is asked


@pytest.mark.slow
def test_status_tells_the_forecast(tmp_path: Path) -> None:
    run = make_run(tmp_path, PRECISE.format(TARGET))
    worker = start(run, program=fake.PROGRAM)
    words = "its target error is expected after "
    wait_until(lambda: examine(run).message.startswith(words), "it is forecast")
    seen = examine(run)
    assert seen.state is State.RUNNING
    n_expected = int(seen.message.removeprefix(words).removesuffix(" steps"))
    assert n_expected in looks(CEILING)
    worker.kill()
    worker.communicate()
