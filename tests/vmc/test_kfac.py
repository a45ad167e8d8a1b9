"""K-FAC against direct solves with the matrices that it stands for, and on one and two devices."""

import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.flatten_util import ravel_pytree

from tests.ansatze import small_ferminet
from tests.updates import Updating
from tests.wavefunctions import Clamped, make_local_energy, make_vmc
from vmcjob.errors import UsageError
from vmcjob.run.calculation import build
from vmcjob.run.state import from_arrays, to_arrays
from vmcjob.spec import parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.ansatz import WaveFunction
from vmcjob.vmc.ansatz.ferminet import FermiNet
from vmcjob.vmc.contracts import ChainState, LogPsi, LoopState, Params
from vmcjob.vmc.energy import Clipping
from vmcjob.vmc.kfac import Kfac
from vmcjob.vmc.kfac_layers import is_repair_needed, load
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.scores import lazy_scores
from vmcjob.vmc.system import System, deviates, initial_positions

HELIUM = System(((0.0, 0.0, 0.0),), (2,), 1, 1)
LITHIUM = System(((0.0, 0.0, 0.0),), (3,), 2, 1)
NARROW = Clamped(WaveFunction(FermiNet(HELIUM, 1, True, 1, 4, 4)), HELIUM)
CONSTANT = Decay(1e-2, math.inf)  # between inversions, a decay would reach some blocks only
PERIODIC: dict[str, Any] = {"inverse_period": 2, "damping": CONSTANT}
REPOSITORY = Path(__file__).parents[2]


def make_kfac(log_psi: LogPsi, n_electrons: int = 2, **changes: Any) -> Updating:
    """K-FAC with a strong damping that neither clips nor constrains, and forgets nothing."""
    options: dict[str, Any] = {
        "n_electrons": n_electrons,
        "learning_rate": Decay(0.1, 100.0),
        "norm_constraint": 1e9,
        "clipping": Clipping(1e9, "mean"),
        "damping": Decay(1e-2, 10.0, 5e-3),
        "momentum": 0.0,
        "curvature_decay": 0.9,
        "inverse_period": 1,
        "is_inverse_exact": True,
        "estimation_mode": "fisher_exact",
        "burn_in": 0,
        "l2": 0.0,
        "seed": 0,
        "stream": 0,
    }
    return Updating.make(log_psi, Kfac, options | changes)


class Batch(NamedTuple):
    """Walkers and energies from nowhere: the linear algebra does not mind."""

    r: np.ndarray
    e_loc: np.ndarray


def random_batch(seed: int, n_electrons: int = 2, n_walkers: int = 32) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(rng.standard_normal((n_walkers, n_electrons, 3)), rng.standard_normal(n_walkers))


def updates(optimizer: Updating, params: Params, batches: list[Batch]) -> list[np.ndarray]:
    """The changes of the flat parameters by one update after the other, on all devices."""
    mapped = devices.pmap(lambda given, step: optimizer.update(*given, step=step)[:2])
    state = devices.replicate((params, jax.jit(optimizer.init)(params)))
    deltas = []
    for step, (r, e_loc) in enumerate(batches):
        given = (*state, devices.shard(jnp.asarray(r)), devices.shard(jnp.asarray(e_loc)))
        before, state = state[0], mapped(given, jnp.asarray(step))
        # The change itself: parameters after minus before would round it away in float32.
        deltas.append(devices.unreplicate(state[1]).velocity)
        old, new = (ravel_pytree(devices.unreplicate(tree))[0] for tree in (before, state[0]))
        np.testing.assert_allclose(new, old + deltas[-1], rtol=1e-6, atol=1e-6)
    return deltas


def linear_model() -> tuple[LogPsi, Params]:
    """log|ψ| = w · r + b, a dense layer with one output."""
    layer = nn.Dense(1, param_dtype=jnp.float64)

    def log_psi(params: Params, r: Array) -> Array:
        return jnp.sum(apply(layer, params, r.reshape(-1)))

    return log_psi, layer.init(jax.random.key(0), jnp.ones(6))


def array_model() -> tuple[LogPsi, Params]:
    """log|ψ| = −Σ α_ix r_ix², an array of parameters that is no dense layer."""
    return lambda params, r: -jnp.sum(params["alpha"] * r**2), {"alpha": jnp.ones((2, 3))}


def apply(layer: nn.Dense, params: Params, x: Array) -> Array:
    return layer.apply(params, x)  # pyright: ignore[reportReturnType] -- no mutable variables


def explicit_scores(log_psi: LogPsi, params: Params, r: np.ndarray) -> np.ndarray:
    """∂ log|ψ|/∂θ, a row for every walker, one walker at a time."""
    rows = [ravel_pytree(jax.grad(log_psi)(params, jnp.asarray(one)))[0] for one in r]
    return np.stack([np.asarray(row) for row in rows])


def expected_updates(
    log_psi: LogPsi, params: Params, batches: list[Batch], updating: Updating
) -> list[np.ndarray]:
    """The formulas of `vmcjob.vmc.kfac` with all parameters in one block, by dense matrices."""
    theta, unravel = ravel_pytree(params)
    optimizer = updating.optimizer
    damping, limit = optimizer.damping, updating.rule.norm_constraint
    assert isinstance(damping, Decay)
    fisher = inverse = np.zeros((theta.size, theta.size))
    weight, delta, deltas = 0.0, np.zeros(theta.size), []
    for step, (r, e_loc) in enumerate(batches):
        scores = explicit_scores(log_psi, unravel(theta), r)
        weight = optimizer.curvature_decay * weight + 1.0
        fisher = fisher + (2.0 * scores.T @ scores / len(r) - fisher) / weight
        if step % optimizer.inverse_period == 0:
            decayed = damping.initial / (1 + step / damping.steps)
            added = max(decayed, damping.minimum) + optimizer.l2
            inverse = np.linalg.inv(fisher + added * np.eye(theta.size))
        gradient = scores.T @ (e_loc - e_loc.mean()) / len(r) + optimizer.l2 * np.asarray(theta)
        direction, eta = inverse @ gradient, 0.1 / (1 + step / 100.0)
        eta *= min(1.0, np.sqrt(limit / (eta**2 * direction @ gradient)))
        delta = (step >= optimizer.burn_in) * (optimizer.momentum * delta - eta * direction)
        theta = theta + delta
        deltas.append(delta)
    return deltas


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("model", "changes"),
    [
        pytest.param(model, changes, marks=() if model in models else pytest.mark.full_matrix)
        for model in (linear_model, array_model)
        for changes, models in (
            ({}, {linear_model, array_model}),
            ({"is_inverse_exact": False}, {linear_model, array_model}),
            (PERIODIC | {"momentum": 0.5, "l2": 0.1}, {linear_model}),
            (PERIODIC | {"is_inverse_exact": False}, {array_model}),
            ({"norm_constraint": 1e-4}, {linear_model}),
            ({"burn_in": 2}, {array_model}),
        )
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(value) or "plain",
)
def test_updates_of_a_model_with_one_block_solve_the_dense_system(
    model: Callable[[], tuple[LogPsi, Params]], changes: dict[str, Any]
) -> None:
    """One dense layer with one output, or one array: then K-FAC makes no approximation.

    Also its factored damping is exact: a factor of size 1 takes none of it. A missing factor 2, an
    average that starts from zeros, the inverse of another step would show. λ_max / λ is about 1e3.
    """
    log_psi, params = model()
    batches = [random_batch(seed) for seed in range(4)]
    optimizer = make_kfac(log_psi, **changes)
    expected = expected_updates(log_psi, params, batches, optimizer)
    np.testing.assert_allclose(updates(optimizer, params, batches), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_equal_local_energies_move_nothing() -> None:
    """An eigenstate has no gradient; 0/0 in the norm constraint must not spoil it."""
    log_psi, params = array_model()
    batch = random_batch(0)._replace(e_loc=np.full(32, -2.0))
    (found,) = updates(make_kfac(log_psi, norm_constraint=1e-3), params, [batch])
    np.testing.assert_array_equal(found, 0.0)


@pytest.mark.usefixtures("float64")
def test_the_block_of_a_layer_that_electrons_share_is_a_product_of_moments() -> None:
    """A ⊗ G / n, from the n electrons' inputs with a one for the bias, and what comes back.

    For log|ψ| = Σ_i v · tanh(W r_i + b), A = ⟨Σ_i x_i x_iᵀ⟩ with x = (r, 1), and
    G = 2 ⟨Σ_i y_i y_iᵀ⟩ with y = v (1 − tanh²).
    A bias with a block of its own, or a mean over electrons for a sum, would show.
    """
    layer, v = nn.Dense(4, param_dtype=jnp.float64), np.array([1.0, -2.0, 0.5, 3.0])

    def log_psi(params: Params, r: Array) -> Array:
        return jnp.sum(nn.tanh(apply(layer, params, r)) * v)

    params = layer.init(jax.random.key(0), jnp.ones((3, 3)))
    r, e_loc = batch = random_batch(0, n_electrons=3)
    kernel, bias = (np.asarray(params["params"][name]) for name in ("kernel", "bias"))
    x = np.concatenate([r, np.ones((*r.shape[:2], 1))], axis=-1)
    y = v * (1 - np.tanh(r @ kernel + bias) ** 2)
    moments = [np.einsum("wia,wib->ab", z, z) / len(r) for z in (x, y)]
    fisher = 2.0 * np.kron(*moments) / 3
    gradient = np.einsum("w,wia,wib->ab", e_loc - e_loc.mean(), x, y).reshape(-1) / len(r)
    delta = -0.1 * np.linalg.solve(fisher + 1e-2 * np.eye(fisher.shape[0]), gradient)
    (found,) = updates(make_kfac(log_psi, 3), params, [batch])
    expected = np.concatenate([delta[12:], delta[:12]])  # flax names bias before kernel
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "changes", [{}, {"is_inverse_exact": False}, {"inverse_period": 2, "damping": CONSTANT}]
)
def test_a_layer_without_scores_does_not_move(changes: dict[str, Any]) -> None:
    """The softmax of one logit is constant, as attention over one electron is.

    kfac-jax divides by the number of electrons whose scores are not zero: 0 · ∞ is NaN.
    """
    seen, unseen = (nn.Dense(1, param_dtype=jnp.float64) for _ in range(2))

    def log_psi(params: Params, r: Array) -> Array:
        weight = nn.softmax(apply(unseen, params["b"], r), axis=-1)
        return jnp.sum(weight * apply(seen, params["a"], r))

    keys = jax.random.split(jax.random.key(0))
    params = {
        "a": seen.init(keys[0], jnp.ones((1, 3))),
        "b": unseen.init(keys[1], jnp.ones((1, 3))),
    }
    for found in updates(make_kfac(log_psi, 1, **changes), params, [random_batch(0, 1)] * 2):
        n = found.size // 2
        assert np.isfinite(found[:n]).all()
        assert np.abs(found[:n]).min() > 0.0
        np.testing.assert_array_equal(found[n:], 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_the_fisher_matrix_is_twice_the_uncentred_overlap() -> None:
    """2 Oᵀ O / N: what kfac-jax multiplies with for a normal distribution of variance ½."""
    log_psi, r = NARROW.log_psi, jnp.asarray(random_batch(0).r)
    params = jax.jit(NARROW.init)(jax.random.key(0), r[0])
    flat, unravel = ravel_pytree(params)
    kfac_jax = load()

    def registered(params: Params, r: Array) -> Array:
        batch = jax.vmap(log_psi, (None, 0))(params, r)
        kfac_jax.register_normal_predictive_distribution(batch[:, None])
        return jnp.mean(batch)

    def twice_overlap(v: Array) -> Array:
        scores = lazy_scores(log_psi, params, r)
        return 2.0 * scores.apply_transpose(scores.apply(v)) / len(r)

    fisher = kfac_jax.ImplicitExactCurvature(registered)
    v = jax.random.normal(jax.random.key(1), flat.shape)
    found = jax.jit(lambda v: fisher.multiply_fisher((params, r), unravel(v)))(v)
    expected = jax.jit(twice_overlap)(v)
    np.testing.assert_allclose(ravel_pytree(found)[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("full", [True, False])
def test_every_dense_layer_of_a_ferminet_is_in_a_kronecker_factored_block(full: bool) -> None:
    """Kernels and biases; for the rest kfac-jax would have blocks that grow with the batch."""
    net = small_ferminet(LITHIUM, full_determinants=full)
    params = jax.eval_shape(net.init, jax.random.key(0), jnp.ones((3, 3)))
    blocks = make_kfac(net.log_psi, n_electrons=3).optimizer.describe_blocks(params)
    assert len(blocks) == len(jax.tree.leaves(params))
    dense = {name for name in blocks if name.endswith(("kernel", "bias"))}
    assert len(dense) == 12
    assert dense == {name for name, block in blocks.items() if "Kronecker" in block}
    assert {blocks[name] for name in blocks.keys() - dense} == {"ScaleAndShiftFull"}


def test_a_large_array_gets_a_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its matrix would not fit the memory."""
    monkeypatch.setattr("vmcjob.vmc.kfac_layers.MAX_FULL_BLOCK", 5)
    log_psi, params = array_model()
    assert make_kfac(log_psi).optimizer.describe_blocks(params) == {
        "alpha": "ScaleAndShiftDiagonal"
    }


@pytest.mark.full_matrix  # test_optimizers_conformance.py
@pytest.mark.slow
def test_one_update_is_the_same_on_one_and_on_two_devices(tmp_path: Path) -> None:
    """Same walkers, same update: moments are averaged, and energies centred, over all devices.

    Blocks that squared a sum over the walkers of a device would differ by a factor. In float64,
    where a condition of 1e5 still leaves ten digits; the second update, with an inverse kept.
    """
    one, two = (_update_in_new_process(n, tmp_path) for n in (1, 2))
    assert np.linalg.norm(two - one) <= 1e-10 * np.linalg.norm(one)


def _update_in_new_process(n_devices: int, folder: Path) -> np.ndarray:
    """The second of two updates, in a process with so many CPU devices."""
    load()  # or skip
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={n_devices}",
        "JAX_ENABLE_X64": "1",
        "PYTHONPATH": str(REPOSITORY),
    }
    code = (
        "import jax, numpy, tests.vmc.test_kfac as t\n"
        f"assert jax.local_device_count() == {n_devices}\n"
        "optimizer = t.make_kfac(t.NARROW.log_psi, inverse_period=2)\n"
        "batches = [t.random_batch(seed) for seed in (0, 1)]\n"
        "params = jax.jit(t.NARROW.init)(jax.random.key(0), batches[0].r[0])\n"
        f"numpy.save({str(folder / 'out.npy')!r}, t.updates(optimizer, params, batches)[-1])\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=200)
    return np.load(folder / "out.npy")


def make_helium(**changes: Any) -> tuple[Vmc, LoopState]:
    """Helium with what a spec has by default, but for a state of which every part counts."""
    log_psi = NARROW.log_psi
    local_energy = make_local_energy(log_psi, HELIUM)
    options: dict[str, Any] = {
        "learning_rate": Decay(0.05, 1e4),
        "damping": Decay(1e-3, math.inf),
        "momentum": 0.5,
        "norm_constraint": 1e-3,
        "clipping": Clipping(5.0, "median"),
        "inverse_period": 2,
        "is_inverse_exact": False,
    }
    optimizer = make_kfac(log_psi, **(options | changes))
    vmc = make_vmc(log_psi, local_energy, optimizer, seed=0, moves=Moves(5), target_acceptance=0.5)
    r = initial_positions(HELIUM, deviates(HELIUM, jax.random.key(1), 128))
    params = jax.jit(NARROW.init)(jax.random.key(0), r[0])
    chain = ChainState(devices.shard(r), devices.replicate(jnp.asarray(0.5, r.dtype)))
    return vmc, LoopState(*devices.replicate((params, optimizer.init(params))), chain)


class Training(NamedTuple):
    """One run of 200 steps."""

    energies: list[float]
    checkpoints: dict[int, dict[str, np.ndarray]]  # by the number of steps done


@pytest.fixture(scope="module")
def training() -> Training:
    vmc, state = make_helium()
    done_so_far = Training([], {})
    for done in iterate(vmc.train_step(), state, 0, 200):
        done_so_far.energies.append(float(devices.unreplicate(done.info).energy))
        if done.step + 1 in (3, 6):
            done_so_far.checkpoints[done.step + 1] = to_arrays(done.state)
    return done_so_far


@pytest.mark.full_matrix  # that energies fall: test_optimizers_conformance.py
@pytest.mark.slow
def test_some_steps_come_close_to_the_energy_of_helium(training: Training) -> None:
    """Below −2.85 hartree in the last 50 of 200 steps of a tiny network; exact are −2.9037."""
    assert -2.95 < np.mean(training.energies[-50:]) < -2.85


@pytest.mark.full_matrix  # test_optimizers_conformance.py
@pytest.mark.slow
def test_three_steps_and_three_more_from_a_checkpoint_are_six_steps(training: Training) -> None:
    """Bit for bit, with an optimizer made anew: all that it remembers is in its state."""
    vmc, like = make_helium()
    state = from_arrays(training.checkpoints[3], like)
    for done in iterate(vmc.train_step(), state, 3, 6):
        state = done.state
    resumed, whole = to_arrays(state), training.checkpoints[6]
    assert resumed.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=name)


def test_the_repair_of_kfac_jax_is_needed() -> None:
    """If this fails, kfac-jax has caught up with JAX: `evaluate_equation` can go."""
    load()
    name = "kfac_jax._src.tag_graph_matcher"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    unrepaired = importlib.util.module_from_spec(spec)
    sys.modules["unrepaired"] = unrepaired
    spec.loader.exec_module(unrepaired)
    (equation,) = jax.make_jaxpr(jnp.negative)(1.0).eqns
    if is_repair_needed():
        with pytest.raises((ValueError, TypeError)):
            unrepaired.eval_jaxpr_eqn(equation, [1.0])
    else:
        assert unrepaired.eval_jaxpr_eqn(equation, [1.0]) == [-1.0]


def build_with_kfac() -> None:
    text = 'name = "he"\nsystem.atoms = [["He", 0, 0, 0]]\noptimizer.kind = "kfac"\n'
    (point,) = parse_spec(text, "job.toml").points
    build(point.spec)


def test_without_kfac_jax_a_spec_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence, before any array; JAX has nothing to do with it."""
    monkeypatch.setitem(sys.modules, "kfac_jax", None)
    message = "^optimizer.kind: kfac-jax is not installed; pip install .*, or choose spring$"
    with pytest.raises(UsageError, match=message):
        build_with_kfac()


def test_without_a_kfac_jax_that_works_a_spec_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with JAX 0.11, where importing kfac-jax 0.0.8 fails."""
    broken = "raise AttributeError(\"module 'jax.core' has no attribute 'Effects'\")\n"
    (tmp_path / "kfac_jax.py").write_text(broken)
    load()
    monkeypatch.delitem(sys.modules, "kfac_jax")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UsageError, match=r"kfac-jax does not work with JAX .*'Effects'.*< 0.11, or"
    ):
        build_with_kfac()
