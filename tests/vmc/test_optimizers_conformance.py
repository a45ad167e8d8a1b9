"""What every optimizer must do, whatever its direction: each kind that a spec may choose.

Two electrons in a harmonic trap, ψ = exp(−½ Σ α_ix r_ix²): E = ¼ Σ (α + 1/α), and no variance where
all α are 1. Six parameters in one array, of which K-FAC makes one block, and no approximation.
"""

from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.forks import on_devices
from tests.updates import Updating
from tests.wavefunctions import unsigned
from vmcjob import spec as jobspec
from vmcjob.run.optimizer import COLUMNS, make_optimizer, make_rule
from vmcjob.run.rollback import FIRST_TRY
from vmcjob.run.state import from_arrays, to_arrays
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import METRICS, ChainState, LoopState, Nuclei, StepInfo
from vmcjob.vmc.hamiltonian import Hamiltonian
from vmcjob.vmc.kfac_layers import KfacUnavailableError
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.steps import Step

KINDS: dict[str, jobspec.Optimizer] = {
    "sr": jobspec.Sr(),
    "sr-dense": jobspec.Sr(scores="dense"),
    "minsr": jobspec.MinSr(),
    "spring": jobspec.Spring(),
    "kfac": jobspec.Kfac(),
    "kfac-adapted": jobspec.Kfac(momentum=0.5, damping_adaptation_period=2, inverse_period=2),
    "adam": jobspec.Adam(learning_rate=0.1),
    "lamb": jobspec.Lamb(learning_rate=0.1),
}
LIMIT = 1e-8
every_optimizer = pytest.mark.parametrize("name", KINDS)
pytestmark = pytest.mark.usefixtures("float64")


def log_psi(params: Any, r: Array) -> Array:
    return -0.5 * jnp.sum(params["alpha"] * r**2)


def trap(psi: Any, params: Any, r: Array, nuclei: Nuclei, key: Array) -> Array:
    """The local energy, exact."""
    del psi, nuclei, key
    alpha = params["alpha"]
    return 0.5 * jnp.sum(alpha + (1.0 - alpha**2) * r**2)


def spec_of(name: str) -> jobspec.JobSpec:
    text = 'name = "he"\nsystem.atoms = [["He", 0, 0, 0]]\nnumerics.dtype = "float64"\n'
    (point,) = jobspec.parse_spec(text, "job.toml").points
    return replace(point.spec, optimizer=KINDS[name])


@cache
def make_vmc(name: str) -> Vmc:
    spec = spec_of(name)
    return Vmc(
        psi=unsigned(log_psi),
        hamiltonian=Hamiltonian({"all": trap}),
        nuclei=Nuclei(jnp.zeros((0, 3)), jnp.zeros(0)),
        make_optimizer=partial(make_optimizer, spec, FIRST_TRY),
        rule=make_rule(spec),
        seed=0,
        moves=Moves(5),
        target_acceptance=0.5,
    )


@cache
def train_step(name: str) -> Step:
    """Compiled once for all tests."""
    return make_vmc(name).train_step()


def start(name: str, alpha: Any) -> LoopState:
    params = {"alpha": jnp.full((2, 3), 1.0) * alpha}
    r = jax.random.normal(jax.random.key(0), (128, 2, 3))
    chain = ChainState(devices.shard(r), devices.replicate(jnp.asarray(0.7)))
    memory = make_vmc(name).optimizer.init(params)
    return LoopState(devices.replicate(params), devices.replicate(memory), chain)


def train(name: str, state: LoopState, first: int, last: int) -> tuple[LoopState, list[StepInfo]]:
    infos = []
    for done in iterate(train_step(name), state, first, last):
        state = done.state
        infos.append(devices.unreplicate(done.info))
    return state, infos


def alpha_of(state: LoopState) -> np.ndarray:
    return np.asarray(devices.unreplicate(state.params)["alpha"])


def test_every_kind_of_a_spec_is_here() -> None:
    """A new one has to pass too."""
    assert {type(options) for options in KINDS.values()} == set(get_args(jobspec.Optimizer))
    assert COLUMNS.keys() == set(get_args(jobspec.Optimizer))


@pytest.mark.slow
@every_optimizer
def test_the_energy_falls(name: str) -> None:
    """From α = 2, of energy 15/4, at least half of the way to the ground state's 3."""
    state, _ = train(name, start(name, 2.0), 0, 60)
    alpha = alpha_of(state)
    assert 3.0 <= 0.25 * np.sum(alpha + 1.0 / alpha) < 3.375


@pytest.mark.slow
@every_optimizer
def test_where_the_gradient_is_zero_nothing_moves(name: str) -> None:
    """An eigenstate's local energies are all the same: 0/0 must not spoil it."""
    state, infos = train(name, start(name, 1.0), 0, 2)
    np.testing.assert_array_equal(alpha_of(state), 1.0)
    assert [float(info.update.update_norm) for info in infos if info.update] == [0.0, 0.0]
    for info in infos:
        assert all(np.isfinite(value) for value in (info.told or {}).values())


@pytest.mark.slow
@every_optimizer
def test_what_it_remembers_survives_a_checkpoint(name: str) -> None:
    """Two steps and two more are four, bit for bit."""
    whole, _ = train(name, start(name, 2.0), 0, 4)
    half, _ = train(name, start(name, 2.0), 0, 2)
    again = from_arrays(to_arrays(half), like=start(name, 3.0))
    resumed, expected = to_arrays(train(name, again, 2, 4)[0]), to_arrays(whole)
    assert resumed.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(resumed[key], array, err_msg=key)


@every_optimizer
def test_it_tells_what_it_has_declared(name: str) -> None:
    """Finite numbers under its own names, beside those of all optimizers."""
    _, infos = train(name, start(name, 2.0), 0, 3)
    columns = make_vmc(name).optimizer.columns
    assert columns == COLUMNS[type(KINDS[name])]
    for info in infos:
        assert info.told is not None
        assert info.told.keys() == columns.keys()
        assert info.update is not None
        for value in (*info.told.values(), *info.update):
            assert np.shape(value) == ()
            assert np.isfinite(value)
        assert info.update.grad_norm > 0.0


def explicit_square(metric: str, delta: np.ndarray, r: np.ndarray, damping: float) -> float:
    """The squared length of a step, from every walker's score −½ r²."""
    flat, scores = delta.ravel(), -0.5 * (r**2).reshape(len(r), -1)
    match metric:
        case "overlap":
            return float(np.var(scores @ flat))
        case "euclidean":
            return float(flat @ flat)
        case "curvature":
            return float(2.0 * np.mean((scores @ flat) ** 2) + damping * flat @ flat)
    raise AssertionError(metric)


@every_optimizer
def test_a_step_is_as_long_as_the_norm_constraint_in_the_metric_that_it_says(name: str) -> None:
    """A limit that binds; in each other metric, the step's length is another."""
    vmc, alpha = make_vmc(name), 1.0 + 0.2 * np.arange(6.0).reshape(2, 3)
    rule = replace(vmc.rule, norm_constraint=LIMIT, min_ess=0.0)
    (delta,) = single_updates(Updating(log_psi, vmc.optimizer, rule), alpha, 1)
    options, r = KINDS[name], walkers()
    damping = options.damping if isinstance(options, jobspec.Kfac) else 0.0
    found = {metric: explicit_square(metric, delta, r, damping) for metric in METRICS}
    limit = rule.learning_rate.limit(jnp.asarray(0), LIMIT)
    np.testing.assert_allclose(found.pop(vmc.optimizer.metric), limit, rtol=1e-6)
    assert all(abs(other - LIMIT) > 0.01 * LIMIT for other in found.values())


def walkers() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 2, 3))


def single_updates(updating: Updating, alpha: np.ndarray, n: int) -> list[np.ndarray]:
    """The changes of α by `n` updates from the same walkers, on all devices of this process."""
    r, params = walkers(), {"alpha": jnp.asarray(alpha)}
    mapped = devices.pmap(lambda given, step: updating.update(*given, step=step)[:2])
    state, deltas = devices.replicate((params, updating.init(params))), []
    for step in range(n):
        before = devices.unreplicate(state[0])["alpha"]
        e_loc = 0.5 * np.sum(before + (1.0 - before**2) * r**2, axis=(1, 2))
        given = (*state, devices.shard(r), devices.shard(e_loc))
        state = mapped(given, jnp.asarray(step))
        deltas.append(devices.unreplicate(state[0])["alpha"] - before)
    return deltas


def three_updates(name: str) -> np.ndarray:
    """By an optimizer, on all devices of this process."""
    vmc, alpha = make_vmc(name), 1.0 + 0.2 * np.arange(6.0).reshape(2, 3)
    return np.array(single_updates(Updating(log_psi, vmc.optimizer, vmc.rule), alpha, 3))


def save_updates(path: str) -> None:
    """Three updates by every optimizer."""
    found = {}
    for name in KINDS:
        with suppress(KfacUnavailableError):
            found[name] = three_updates(name)
    np.savez(path, **found)


@pytest.fixture(scope="module")
def of_two_devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `save_updates` saves, from a process with two devices."""
    path = str(tmp_path_factory.mktemp("devices") / "two.npz")
    on_devices(2, save_updates, path)
    return dict(np.load(path))


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first one compiles all optimizers
@every_optimizer
def test_one_and_two_devices_make_the_same_updates(
    name: str, of_two_devices: dict[str, Any]
) -> None:
    """Rounding apart; a mean per device, or a sum for a mean, would show."""
    one = three_updates(name)  # skips the test where JAX is too new for K-FAC
    assert np.abs(one).min() > 0.0
    np.testing.assert_allclose(of_two_devices[name], one, rtol=1e-9)
