"""Scores that are left as factors, against those that are written down."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.flatten_util import ravel_pytree

from tests.ansatze import small_ferminet, small_psiformer
from tests.matrix import rest
from tests.wavefunctions import Clamped
from vmcjob.vmc import devices
from vmcjob.vmc.centred_scores import CentredScores, centred_scores
from vmcjob.vmc.contracts import LogPsi, Params
from vmcjob.vmc.gram import solve_gram
from vmcjob.vmc.layers import Kernel, split_gradient
from vmcjob.vmc.scores import score_matrix
from vmcjob.vmc.system import System

LITHIUM_HYDRIDE = System(((0.0, 0.0, 0.0), (0.0, 0.0, 3.015)), (3, 1), 2, 2)
N_WALKERS = 12
MANY_WAYS = "in many ways"


def in_many_ways(params: Params, r: Array) -> Array:
    """Kernels that lie as they like, one that is used twice, and one that is no kernel."""
    h = jnp.tanh(r @ params["plain"])  # (elec, 40)
    h = jnp.tanh(jnp.einsum("ei,oi->eo", h, params["transposed"]))
    heads = jnp.tanh(jnp.einsum("ei,ihd->ehd", h, params["heads"]))
    merged = jnp.tanh(jnp.einsum("ehd,hdo->oe", heads, params["merging"]))
    mean = merged.mean(1)
    twice = jnp.tanh(jnp.tanh(mean @ params["twice"]) @ params["twice"])
    each = jax.vmap(lambda x: x @ params["mapped"])(merged.T)
    scaled = twice * params["scale"]
    return jnp.sum(jnp.tanh(each)) + jnp.sum(scaled) - jnp.sum(r**2)


def parameters_of_many_ways() -> Params:
    shapes = {
        "plain": (3, 40),
        "transposed": (200, 40),
        "heads": (200, 5, 40),
        "merging": (5, 40, 200),
        "twice": (200, 200),
        "mapped": (200, 300),
        "scale": (200,),
    }
    random = np.random.default_rng(1)
    return {
        name: jnp.asarray(random.normal(size=shape)) / shape[0] ** 0.5
        for name, shape in shapes.items()
    }


def functions() -> dict[str, Callable[[], tuple[LogPsi, Params]]]:
    def of_net(make: Callable[..., Clamped]) -> tuple[LogPsi, Params]:
        net = make(LITHIUM_HYDRIDE)
        return net.log_psi, net.init(jax.random.key(0), jnp.ones((4, 3)))

    return {
        "ferminet": partial(of_net, small_ferminet),
        "psiformer": partial(of_net, small_psiformer),
        MANY_WAYS: lambda: (in_many_ways, parameters_of_many_ways()),
    }


@pytest.fixture(params=[*rest("ferminet"), "psiformer", MANY_WAYS])
def function(
    request: pytest.FixtureRequest, float64: None, monkeypatch: pytest.MonkeyPatch
) -> tuple[LogPsi, Params]:
    """A wave function of four electrons and its parameters, in float64; no kernel is too narrow."""
    del float64
    monkeypatch.setattr("vmcjob.vmc.layers.MIN_GAIN", 0.0)
    return functions()[request.param]()


def walkers() -> Array:
    return jax.random.normal(jax.random.key(5), (N_WALKERS, 4, 3))


@pytest.mark.slow
def test_factors_multiplied_are_the_gradient(function) -> None:
    log_psi, params = function
    r = walkers()[0]
    gradient = split_gradient(log_psi, params, r)
    assert gradient.kernels
    leaves, factors = jax.jit(gradient.evaluate)(params, r)
    for kernel, (a, b) in zip(gradient.kernels, factors, strict=True):
        leaf = kernel.to_leaf(a.T @ b)
        np.testing.assert_array_equal(kernel.to_leaf(kernel.to_matrix(leaf)), leaf)
        leaves.insert(kernel.leaf, leaf)
    expected = jax.tree.leaves(jax.jit(jax.grad(log_psi))(params, r))
    for found, exact in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-12)


def test_which_products_are_left() -> None:
    """Those of wide kernels that few rows go through; not one that is used twice."""
    params = parameters_of_many_ways()
    gradient = split_gradient(in_many_ways, params, jnp.zeros((4, 3)))
    names = list(params)
    left = {sorted(names)[kernel.leaf] for kernel in gradient.kernels}
    assert left == {"heads", "mapped", "merging", "transposed"}


# Devices and chunks do not depend on the wave function, nor on one another.
ALWAYS = (MANY_WAYS, 1, 1), (MANY_WAYS, 3, 4)
SHARED = [
    pytest.param(name, *n, marks=() if (name, *n) in ALWAYS else pytest.mark.full_matrix)
    for name in functions()
    for n in ((1, 1), (1, 4), (3, 1), (3, 4))
]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "n_devices", "n_chunks"), SHARED, indirect=["function"])
def test_products_are_those_of_the_matrix(function, n_devices, n_chunks, monkeypatch) -> None:
    """Centred over the walkers of all devices, for which an axis of vmap stands."""
    log_psi, params = function
    r = walkers()
    flat, _ = ravel_pytree(params)
    if n_chunks > 1:
        monkeypatch.setattr("vmcjob.vmc.scores.CHUNK_BYTES", 8 * flat.size * N_WALKERS // n_chunks)
        monkeypatch.setattr("vmcjob.vmc.centred_scores.CHUNK_BYTES", 1 << 14)
    matrix = np.asarray(jax.jit(partial(score_matrix, log_psi))(params, r))
    matrix = (matrix - matrix.mean(0)) * 0.5
    v, w = (np.random.default_rng(2).normal(size=n) for n in (flat.size, N_WALKERS))

    def products(r: Array) -> tuple[Array, ...]:
        scores: CentredScores = centred_scores(log_psi, params, r, jnp.asarray(0.5))
        parts = scores.split(jnp.asarray(v))
        transposed = scores.join(scores.apply_transpose(jnp.asarray(w)))
        gram = jnp.triu(scores.gram()), scores.gram_columns(5), scores.gram_of_first(5)
        return scores.apply(parts), transposed, *gram, scores.join(parts)

    dealt = r.reshape(n_devices, -1, 4, 3)
    on_all = jax.jit(jax.vmap(products, axis_name=devices.AXIS))(dealt)
    gram = matrix @ matrix.T
    some = gram[:, :5] - gram[:, :5].mean(axis=1, keepdims=True)
    wanted = matrix @ v, w @ matrix, np.triu(gram), some, some[:5] - some[:5].mean(axis=0), v
    for found, exact in zip(on_all, wanted, strict=True):
        of_each = np.broadcast_to(exact, found.shape)
        np.testing.assert_allclose(found, of_each, rtol=0, atol=1e-11 * float(np.abs(exact).max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_devices", "condition"),
    [
        (4, 1e7),
        *rest((1, 1e4), (1, 1e7), (2, 1e4), (2, 1e7), (4, 1e4)),
    ],
)
def test_directions_in_float32_are_those_of_float64(n_devices, condition) -> None:
    """Though factors are not centred: to 1e-4, as with scores that are."""
    params = parameters_of_many_ways()
    r = jax.random.normal(jax.random.key(6), (96, 4, 3))
    rhs = np.random.default_rng(3).normal(size=96).astype(np.float32)
    rhs -= rhs.mean()
    rows = exact_scores(params, r)
    damping = float(np.linalg.eigvalsh(rows @ rows.T)[-1]) / condition
    exact = rows.T @ np.linalg.solve(rows @ rows.T + damping * np.eye(96), rhs)

    def solve(r: Array) -> tuple[Array, Array]:
        scores = centred_scores(in_many_ways, params, r, jnp.asarray(0.1))
        solved = solve_gram(scores, jnp.asarray(rhs), damping)
        return scores.join(solved.direction), solved.iterations

    dealt = r.reshape(n_devices, -1, 4, 3)
    directions, iterations = jax.jit(jax.vmap(solve, axis_name=devices.AXIS))(dealt)
    for direction in np.asarray(directions):
        assert np.linalg.norm(direction - exact) <= 1e-4 * np.linalg.norm(exact)
    assert iterations[0] <= 10


def exact_scores(params: Params, r: Array) -> np.ndarray:
    """Centred and times 0.1, multiplied out of the same float32 numbers, but in float64."""
    gradient = split_gradient(in_many_ways, params, r[0])
    leaves, factors = jax.jit(jax.vmap(gradient.evaluate, (None, 0)))(params, r)
    leaves = [np.asarray(leaf, np.float64) for leaf in leaves]
    for kernel, f in zip(gradient.kernels, factors, strict=True):
        products = np.einsum("nki,nko->nio", *(np.asarray(x, np.float64) for x in f))
        leaves.insert(kernel.leaf, as_leaves(kernel, products))
    rows = np.concatenate([leaf.reshape(len(r), -1) for leaf in leaves], axis=1)
    return 0.1 * (rows - rows.mean(0))


def as_leaves(kernel: Kernel, matrices: np.ndarray) -> np.ndarray:
    """`Kernel.to_leaf` of many, in float64."""
    order = (0, *(axis + 1 for axis in kernel.order))
    return matrices.reshape(-1, *kernel.axes).transpose(order)
