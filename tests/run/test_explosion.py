"""Explosions of a training: what is one, what is none, and how a run goes back."""

from pathlib import Path

import numpy as np
import pytest

from tests.run.harness import HELIUM, finish, make_run, start
from vmcjob.run.explosion import PERSISTENCE, WINDOW, ExplosionWatch
from vmcjob.run.rollback import Cause, RetryPolicy, Rollback
from vmcjob.store import RunStore
from vmcjob.vmc.phases import Phase
from vmcjob.vmc.system import System, energy_bound

RNG = np.random.default_rng(3)
N_WALKERS = 128
BOUND = -3.0


def rows(medians: np.ndarray, energies: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Steps of a training with these energies, in hartree, and a variance of 0.01."""
    energies = medians if energies is None else energies
    return {"median": medians, "energy": energies, "variance": np.full(len(medians), 0.01)}


def falling(n: int) -> np.ndarray:
    """A training that goes well: noise of 9 mHa around an energy that falls from -0.9 to -1.12."""
    return -1.12 + 0.22 * np.exp(-np.arange(n) / 30.0) + RNG.normal(0.0, 0.009, n)


def test_trainings_that_go_well_are_no_explosions() -> None:
    """A false alarm costs the steps since the last commit, and half the rate for good."""
    for _ in range(50):
        watch = ExplosionWatch(BOUND, N_WALKERS)
        assert watch.judge(rows(falling(1000)), 1000).explosion is None


@pytest.mark.parametrize("block", [1, 3, 200])
def test_an_explosion_is_seen_however_blocks_fall(block: int) -> None:
    """It began with the first of five strange steps, and the fifth of them tells."""
    exploded = np.array([-1.104, -1.096, -1.095, -0.96, -0.92, -0.88, -0.84, -0.80, -0.76])
    medians = np.concatenate([falling(191), exploded])
    watch = ExplosionWatch(BOUND, N_WALKERS)
    found = None
    for first in range(0, len(medians), block):
        part = medians[first : first + block]
        judgement = watch.judge(rows(part), first + len(part))
        if (found := judgement.explosion) is not None:
            break
    assert found == 195


def risen_after(n: int, rise: float, n_risen: int = 10) -> dict[str, np.ndarray]:
    """A training of n steps, falling by 0.9 hartree at first, and some more steps at another level.

    Its noise is 2 mHa, its variance 7e-4 hartree².
    """
    trained = -2.17 + 0.9 * np.exp(-np.arange(n) / 5.0)
    energies = np.concatenate([trained, trained[-1] + np.full(n_risen, rise)])
    steps = rows(energies + RNG.normal(0.0, 2e-3, n + n_risen))
    return steps | {"variance": np.full(n + n_risen, 7e-4), "grad_norm": np.full(n + n_risen, 0.3)}


def test_the_first_fall_of_a_training_does_not_hide_a_rise_after_it() -> None:
    """Triplet helium lost 45 mHa after 87 steps, which fell by more in the first of its window."""
    steps = risen_after(60, 0.045)
    assert ExplosionWatch(BOUND, N_WALKERS).judge(steps, 70).explosion == 61


@pytest.mark.parametrize(("surge", "found"), [(1.0, None), (1000.0, 121)])
def test_after_a_surge_of_the_gradient_half_the_rise_will_do(
    surge: float, found: int | None
) -> None:
    """A gradient a thousand times its usual length is no fluctuation of a training."""
    steps = risen_after(120, 0.018)
    steps["grad_norm"][120] *= surge
    assert ExplosionWatch(BOUND, N_WALKERS).judge(steps, 130).explosion == found


def test_a_slow_rise_above_the_best_stretch_is_an_explosion() -> None:
    """12 mHa every 20 steps: a window that rises along never finds a step strange."""
    steps = risen_after(200, 0.0, 200)
    for name in ("median", "energy"):
        steps[name][200:] += 6e-4 * np.arange(200)
    found = ExplosionWatch(BOUND, N_WALKERS).judge(steps, 400).explosion
    assert found is not None
    assert 210 < found < 300
    renewed = ExplosionWatch(BOUND, N_WALKERS)  # a run that went back, or it could never go on
    renewed.accept({name: column[:260] for name, column in steps.items()})
    last = {name: column[260:300] for name, column in steps.items()}
    assert renewed.judge(last, 300) == (False, None)


def test_nothing_is_committed_while_the_last_step_is_strange() -> None:
    """Else the last commit would be of a ruined state."""
    watch = ExplosionWatch(BOUND, N_WALKERS)
    watch.judge(rows(falling(200)), 200)
    for step in range(1, PERSISTENCE):
        judgement = watch.judge(rows(np.array([-0.9])), 200 + step)
        assert (judgement.is_strange, judgement.explosion) == (True, None)
    assert watch.judge(rows(np.array([-1.12])), 205) == (False, None)


def test_what_was_committed_is_the_measure_of_what_follows() -> None:
    """Else a run of before that has once risen could never commit again."""
    watch = ExplosionWatch(BOUND, N_WALKERS)
    risen = np.concatenate([falling(100), np.full(100, -0.5) + RNG.normal(0.0, 0.009, 100)])
    watch.accept(rows(risen))
    assert watch.judge(rows(np.full(10, -0.5)), 210) == (False, None)


@pytest.mark.parametrize("n_good", [1, 10])
def test_a_ruin_in_the_first_steps_is_an_explosion(n_good: int) -> None:
    """Measured by the state that a training begins with, else the ruin would be the measure."""
    watch = ExplosionWatch(BOUND, N_WALKERS)
    good = -0.9 + RNG.normal(0.0, 0.009, n_good)
    ruined = np.full(30, -0.3) + RNG.normal(0.0, 0.05, 30)
    judgement = watch.judge(rows(np.concatenate([good, ruined])), n_good + 30)
    assert judgement.explosion == n_good + 1


def test_first_steps_may_rise_a_little() -> None:
    """By a standard deviation of the local energy of a walker, 0.1 hartree here."""
    watch = ExplosionWatch(BOUND, N_WALKERS)
    medians = np.array([-0.9, *np.full(18, -0.82)])
    assert watch.judge(rows(medians), 19) == (False, None)


def test_one_lost_walker_is_no_explosion() -> None:
    """Its 268 hartree move the mean of the batch for tens of steps, and the median not at all."""
    watch = ExplosionWatch(BOUND, N_WALKERS)
    watch.judge(rows(falling(200)), 200)
    steps = rows(np.full(30, -1.12), np.full(30, -1.12 + 268 / N_WALKERS))
    assert watch.judge(steps, 230).explosion is None


def test_an_energy_below_any_ground_state_is_an_explosion() -> None:
    """Walkers in a pole: the median stays, the mean says -1e3 hartree."""
    watch = ExplosionWatch(BOUND, N_WALKERS)
    watch.judge(rows(falling(WINDOW)), WINDOW)
    steps = rows(np.full(8, -1.12), np.full(8, -1e3))
    assert watch.judge(steps, WINDOW + 8).explosion == WINDOW + 1


def test_a_median_far_below_any_ground_state_is_an_explosion() -> None:
    """The mean may stay near: a few walkers with large energies make up for half of them."""
    watch = ExplosionWatch(BOUND, N_WALKERS)
    watch.judge(rows(falling(WINDOW)), WINDOW)
    skewed = rows(np.full(8, BOUND - 0.9), np.full(8, -1.12))  # 9 standard deviations of a walker
    assert watch.judge(skewed, WINDOW + 8).explosion is None
    ruined = rows(np.full(8, BOUND - 1.5), np.full(8, -1.12))
    assert watch.judge(ruined, WINDOW + 16).explosion == WINDOW + 9


@pytest.mark.parametrize(
    ("system", "exact"),
    [
        (System(((0.0, 0.0, 0.0),), (1,), 1, 0), -0.5),
        (System(((0.0, 0.0, 0.0),), (2,), 1, 0), -2.0),
        (System(((0.0, 0.0, 0.0), (0.0, 0.0, 1.4)), (1, 1), 1, 1), -1.174476),
        (System(((0.0, 0.0, 0.0),), (4,), 2, 2), -14.66736),
        (System(((0.0, 0.0, 0.0), (0.0, 0.0, 3.015)), (3, 1), 2, 2), -8.070548),
    ],
)
def test_no_ground_state_lies_below_the_bound(system: System, exact: float) -> None:
    """Exact for one electron and one nucleus, and a bound for all others."""
    bound = energy_bound(system)
    assert bound <= exact
    if system.n_electrons == 1:
        assert bound == pytest.approx(exact)


# `vmcjob run`, whose parameters are disturbed in one training step, as long as no care is taken.
DISTURBED = """
import sys
import jax
from vmcjob.vmc.loop import Vmc

make_step = Vmc.train_step

def make_disturbed_step(self):
    step = make_step(self)
    def disturbed(state, index):
        state, info = step(state, index)
        if index == 80 and self.retry == 0:
            state = state._replace(params=jax.tree.map(lambda x: 3.0 * x, state.params))
        return state, info
    return disturbed

Vmc.train_step = make_disturbed_step
sys.argv = ["vmcjob", "run", *sys.argv[1:]]
from vmcjob.cli import main
main()
"""


@pytest.mark.full_matrix  # how runs go back: test_ranks.py, test_rollback.py
@pytest.mark.slow
def test_a_run_that_explodes_goes_back_and_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Recorded, with half the step from its last good commit on; the same energy within errors."""
    text = HELIUM.replace("[train]\nsteps = 60", "[train]\nsteps = 140")
    run, other = make_run(tmp_path / "disturbed", text), make_run(tmp_path / "plain", text)
    code, log = finish(start(run, program=("-c", DISTURBED)))
    assert code == 0, log
    assert finish(start(other))[0] == 0
    store, plain = RunStore.open(run.store_path), RunStore.open(other.store_path)
    (rollback,) = (Rollback.from_json(record) for record in store.rollbacks)
    assert (rollback.cause, rollback.phase) == (Cause.EXPLOSION, Phase.TRAIN)
    assert 81 <= rollback.step <= 83
    assert rollback.to_step <= 82
    assert RetryPolicy.after([rollback]).retries == 1
    energies = [s.series("evaluate")["energy"] for s in (store, plain)]
    error = np.hypot(*(values.std() / len(values) ** 0.5 for values in energies))
    assert abs(energies[0].mean() - energies[1].mean()) < 5.0 * error + 0.02
