"""Stochastic reconfiguration against a direct solve, and on one and two devices."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.ansatze import small_ferminet
from tests.matrix import rest
from tests.oracles import natural_gradient
from tests.updates import Updating
from tests.wavefunctions import make_local_energy, make_vmc
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, ChainState, LoopState, UpdateInfo
from vmcjob.vmc.energy import Clipping
from vmcjob.vmc.loop import iterate
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.schedule import Decay, Memory
from vmcjob.vmc.scores import centred_columns, score_matrix
from vmcjob.vmc.spring import Spring
from vmcjob.vmc.sr import StochasticReconfiguration
from vmcjob.vmc.system import System, deviates, initial_positions

HELIUM = System(((0.0, 0.0, 0.0),), (2,), 1, 1)
NET = small_ferminet(HELIUM, determinants=1)
INIT = jax.jit(NET.init)
LOG_PSI = NET.log_psi
LOG_PSI_OF_ALL = jax.jit(jax.vmap(LOG_PSI, (None, 0)))
LOCAL_ENERGY = make_local_energy(LOG_PSI, HELIUM)
FORMS = ("lazy", "dense", "minsr", "spring")
REPOSITORY = Path(__file__).parents[2]


def make_sr(form: str = "lazy", **changes: Any) -> Updating:
    """SR that solves its system to convergence and neither clips nor constrains."""
    options: dict[str, Any] = {
        "learning_rate": Decay(0.1, 100.0),
        "damping": 1e-2,
        "norm_constraint": 1e9,
        "clipping": Clipping(1e9, "mean"),
    }
    if form in ("minsr", "spring"):
        memory: dict[str, Any] = {"memory": Memory(0.9 * (form == "spring"))}
        return Updating.make(LOG_PSI, Spring, options | memory | changes)
    cg: dict[str, Any] = {"is_lazy": form == "lazy", "cg_iterations": 4000, "cg_tolerance": 1e-10}
    return Updating.make(LOG_PSI, StochasticReconfiguration, options | cg | changes)


class Inputs(NamedTuple):
    """What an update starts from."""

    theta: np.ndarray  # flat parameters
    r: np.ndarray
    e_loc: np.ndarray


class Update(NamedTuple):
    """What one update did."""

    delta: np.ndarray
    info: UpdateInfo


def random_inputs(n_walkers: int = 64) -> Inputs:
    """Fresh parameters, walkers and energies from nowhere: the linear algebra does not mind."""
    r = jax.random.normal(jax.random.key(1), (n_walkers, 2, 3))
    e_loc = jax.random.normal(jax.random.key(2), (n_walkers,))
    theta, _ = ravel_pytree(INIT(jax.random.key(0), r[0]))
    return Inputs(np.asarray(theta), np.asarray(r), np.asarray(e_loc))


def trained_inputs() -> Inputs:
    """A helium atom after 30 steps of training: walkers of |ψ|² with their local energies."""
    optimizer = make_sr(cg_iterations=10, norm_constraint=1e-2)
    vmc = make_vmc(LOG_PSI, LOCAL_ENERGY, optimizer, seed=0, moves=Moves(10), target_acceptance=0.5)
    r = initial_positions(HELIUM, deviates(HELIUM, jax.random.key(1), 128))
    params = INIT(jax.random.key(0), r[0])
    chain = ChainState(devices.shard(r), devices.replicate(jnp.asarray(0.3, r.dtype)))
    state = LoopState(*devices.replicate((params, optimizer.init(params))), chain)
    for done in iterate(vmc.train_step(), state, 0, 30):
        state = done.state
    params, r = devices.unreplicate(state.params), devices.gather(state.chain.r)
    e_loc = jax.vmap(LOCAL_ENERGY, (None, 0))(params, jnp.asarray(r))
    return Inputs(np.asarray(ravel_pytree(params)[0]), r, np.asarray(e_loc))


@cache
def program(optimizer: Updating) -> Callable[..., Any]:
    """An update on all devices, compiled once for all tests of an optimizer."""
    return devices.pmap(lambda given, step: optimizer.update(*given, step=step))


def update(
    optimizer: Updating,
    inputs: Inputs,
    step: int = 0,
    remembered: float = 0.0,
) -> Update:
    """One update on all devices of this process, after one of `remembered` in each direction."""
    _, unravel = ravel_pytree(INIT(jax.random.key(0), jnp.asarray(inputs.r[0])))
    params = unravel(jnp.asarray(inputs.theta))
    memory = jax.tree.map(lambda leaf: leaf + remembered, optimizer.init(params))
    sliced = (
        *devices.replicate((params, memory)),
        devices.shard(inputs.r),
        devices.shard(inputs.e_loc),
    )
    new, state, info, *_ = devices.unreplicate(program(optimizer)(sliced, jnp.asarray(step)))
    # The change itself: parameters after minus before would round it away in float32.
    delta = -info.learning_rate * state.direction
    np.testing.assert_allclose(ravel_pytree(new)[0], inputs.theta + delta, rtol=1e-6, atol=1e-6)
    return Update(delta, info)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("form", "n_walkers"),
    [
        ("lazy", 64),
        ("minsr", 64),
        ("dense", 600),
        *rest(("lazy", 600), ("minsr", 600), ("dense", 64)),
    ],
)
def test_an_update_solves_the_damped_linear_system(form, n_walkers) -> None:
    """All forms equal explicit scores and a direct solve, with few and with many walkers."""
    inputs = random_inputs(n_walkers)
    _, unravel = ravel_pytree(INIT(jax.random.key(0), jnp.asarray(inputs.r[0])))
    params = unravel(jnp.asarray(inputs.theta))
    r, e_loc = jnp.asarray(inputs.r), jnp.asarray(inputs.e_loc)
    expected = -0.1 * natural_gradient(LOG_PSI, params, r, e_loc, damping=1e-2)
    found = update(make_sr(form), inputs).delta
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_the_learning_rate_decays_with_the_step() -> None:
    """η = η₀ / (1 + t / decay)."""
    info = update(make_sr(), random_inputs(), step=300).info
    np.testing.assert_allclose(info.learning_rate, 0.1 / 4)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("form", ["lazy", *rest("minsr")])
def test_the_norm_constraint_limits_the_change_of_the_wave_function(form) -> None:
    """The variance of δ log|ψ| over walkers, measured by evaluating ψ, equals a bound that binds.

    To first order it is δθᵀ S δθ; at 1e-8 the second order is 1e-4 of it.
    """
    inputs = random_inputs()
    _, unravel = ravel_pytree(INIT(jax.random.key(0), jnp.asarray(inputs.r[0])))
    delta = update(make_sr(form, norm_constraint=1e-8), inputs).delta
    before, after = (
        LOG_PSI_OF_ALL(unravel(jnp.asarray(theta)), jnp.asarray(inputs.r))
        for theta in (inputs.theta, inputs.theta + delta)
    )
    np.testing.assert_allclose(np.var(after - before), 1e-8, rtol=1e-2)


@pytest.mark.full_matrix  # of all optimizers, the conformance suite asks for as much
@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("form", FORMS)
def test_equal_local_energies_move_nothing(form) -> None:
    """An eigenstate has no gradient; 0/0 in the norm constraint must not spoil it."""
    inputs = random_inputs()._replace(e_loc=np.full(64, -2.0))
    np.testing.assert_array_equal(update(make_sr(form), inputs).delta, 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("form", ["dense", *rest("lazy")])
@pytest.mark.parametrize("remembered", [1e-120, 1e-155, 1e-159, 1e-161, 1e-165])
def test_what_a_zero_gradient_leaves_of_a_direction_does_no_harm(form, remembered) -> None:
    """Step by step it fades, until conjugate gradients would divide zero by zero."""
    inputs = random_inputs()._replace(e_loc=np.full(64, -2.0))
    delta = update(make_sr(form, cg_iterations=20), inputs, remembered=remembered).delta
    assert np.abs(delta).max() < 1e-100


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_spring_minimizes_the_energy_residual_and_the_distance_to_what_it_remembers() -> None:
    """d = argmin ‖O d − ε‖² + λ ‖d − μ d₀‖² (arXiv:2401.10190, eq. 28), solved by least squares."""
    inputs, kept = random_inputs(), 0.9 * 0.01
    _, unravel = ravel_pytree(INIT(jax.random.key(0), jnp.asarray(inputs.r[0])))
    gradient = jax.grad(lambda theta, r: LOG_PSI(unravel(theta), r))
    scores = np.asarray(jax.jit(jax.vmap(gradient, (None, 0)))(inputs.theta, inputs.r))
    rows = (scores - scores.mean(0)) / np.sqrt(len(scores))
    epsilon = (inputs.e_loc - inputs.e_loc.mean()) / np.sqrt(len(scores))
    ridge = np.sqrt(1e-2) * np.eye(rows.shape[1])
    residual = np.concatenate([epsilon, np.full(rows.shape[1], np.sqrt(1e-2) * kept)])
    expected = -0.1 * np.linalg.lstsq(np.concatenate([rows, ridge]), residual)[0]
    found = update(make_sr("spring"), inputs, remembered=0.01).delta
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_the_norm_constraint_of_spring_limits_the_update_itself() -> None:
    """‖δθ‖² is the bound where it binds; the direction that is remembered is not shortened."""
    delta, info = update(make_sr("spring", norm_constraint=1e-8), random_inputs())
    np.testing.assert_allclose(delta @ delta, 1e-8, rtol=1e-9)
    assert info.learning_rate < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("n_walkers", [61, *rest(64)])
def test_scores_by_the_chunk_are_the_scores(n_walkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the chunks do not divide the walkers; a batch of another size rounds otherwise."""
    inputs = random_inputs()
    _, unravel = ravel_pytree(INIT(jax.random.key(0), jnp.asarray(inputs.r[0])))
    params, r = unravel(jnp.asarray(inputs.theta)), jnp.asarray(inputs.r[:n_walkers])
    centred = jax.jit(jax.vmap(partial(centred_columns, scale=0.5), axis_name=devices.AXIS))
    whole = jax.jit(partial(score_matrix, LOG_PSI))(params, r)
    whole_centred = centred(whole[None])
    monkeypatch.setattr("vmcjob.vmc.scores.CHUNK_BYTES", 7 * 4 * inputs.theta.size)
    chunked = jax.jit(partial(score_matrix, LOG_PSI))(params, r)
    np.testing.assert_allclose(chunked, whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole_centred[0], 0.5 * (whole - whole.mean(0)), atol=1e-5)
    np.testing.assert_allclose(centred(whole[None]), whole_centred, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_there_are_no_two_copies_of_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """By XLA's account, a direction takes the scores, a third of them, and squares of walkers."""
    n_walkers = 256
    theta = random_inputs().theta
    spring = make_sr("spring").optimizer
    bytes_of_scores = 4 * n_walkers * theta.size
    monkeypatch.setattr("vmcjob.vmc.scores.CHUNK_BYTES", bytes_of_scores // 16)
    monkeypatch.setattr("vmcjob.vmc.layers.MIN_GAIN", 1e9)  # none is left as factors

    def propose(given: tuple[Any, Any, Batch], _: Any) -> Any:
        proposal = spring.propose(*given)
        return proposal.direction, proposal.square, proposal.gradient

    r = jnp.zeros((n_walkers, 2, 3))
    params = INIT(jax.random.key(0), r[0])
    of_walker = jnp.zeros(n_walkers)
    batch = Batch(r, of_walker, of_walker, of_walker, jnp.zeros((), jnp.int32))
    given = jax.tree.map(lambda x: x[None], (params, spring.init(params), batch))
    mapped: Any = devices.pmap(propose)
    used = mapped.lower(given, 0).compile().memory_analysis().temp_size_in_bytes
    assert bytes_of_scores <= used <= 1.33 * bytes_of_scores + 4 * 4 * n_walkers**2


@pytest.mark.slow
def test_a_batch_of_equal_walkers_is_solved_all_the_same() -> None:
    """The Gram matrix then has rank 0; the damping alone carries the solve."""
    inputs = random_inputs(8)
    same = inputs._replace(r=np.repeat(inputs.r[:1], 8, axis=0))
    assert np.isfinite(update(make_sr("minsr", damping=1e-6), same).delta).all()


@pytest.mark.full_matrix  # of all optimizers, the conformance suite asks for as much
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_one_update_is_the_same_on_one_and_on_two_devices(
    precision: str, tolerance: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Same walkers, same update: scores are centred, and averages taken, over all devices.

    A mean per device, a sum for a mean, or a single pass of centring would show. The solve
    amplifies rounding by its condition, here λ_max / λ of about 40 / 10; at 40 / 1 float32 was seen
    to leave 8e-6.
    """
    if precision == "float64":
        request.getfixturevalue("float64")
    np.savez(tmp_path / "inputs.npz", *trained_inputs())
    one, two = (_updates_in_new_process(n, precision, tmp_path) for n in (1, 2))
    for form in FORMS:
        assert np.linalg.norm(two[form] - one[form]) <= tolerance * np.linalg.norm(one[form]), form


def _updates_in_new_process(n_devices: int, precision: str, folder: Path) -> dict[str, np.ndarray]:
    """The updates from `inputs.npz`, by form, in a process with so many CPU devices."""
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={n_devices}",
        "JAX_ENABLE_X64": str(int(precision == "float64")),
        "PYTHONPATH": str(REPOSITORY),
    }
    code = (
        "import jax, numpy, tests.vmc.test_sr as t\n"
        f"assert jax.local_device_count() == {n_devices}\n"
        f"inputs = t.Inputs(*numpy.load({str(folder / 'inputs.npz')!r}).values())\n"
        "optimizers = {form: t.make_sr(form, damping=10.0) for form in t.FORMS}\n"
        "deltas = {form: t.update(o, inputs, remembered=0.1 * (form == 'spring')).delta\n"
        "          for form, o in optimizers.items()}\n"
        f"numpy.savez({str(folder / 'out.npz')!r}, **deltas)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=200)
    return dict(np.load(folder / "out.npz"))
