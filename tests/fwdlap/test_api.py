"""The doors of the forward Laplacian keep their contract."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fwdlap.oracles import assert_close, exact
from vmcjob import fwdlap

N_ELECTRONS = 4


def log_psi(params: dict[str, jax.Array], r: jax.Array) -> jax.Array:
    """A small Slater-Jastrow-like function of electrons (elec, 3)."""
    h = jnp.tanh(r @ params["w1"])
    mean = jnp.broadcast_to(h.mean(0, keepdims=True), h.shape)
    h = jax.nn.silu(jnp.concatenate([h, mean], axis=1) @ params["w2"])
    orbitals = h * jnp.exp(-jnp.linalg.norm(r, axis=-1, keepdims=True))
    pairs = r[:, None] - r[None] + jnp.eye(len(r))[..., None]
    jastrow = jnp.sum(1.0 / (1.0 + jnp.linalg.norm(pairs, axis=-1)))
    return jnp.linalg.slogdet(orbitals)[1] + jastrow


@pytest.fixture
def params() -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(1))
    return {
        "w1": jax.random.normal(keys[0], (3, 8)),
        "w2": jax.random.normal(keys[1], (16, N_ELECTRONS)),
    }


@pytest.fixture
def walkers() -> jax.Array:
    return jax.random.normal(jax.random.key(0), (5, N_ELECTRONS, 3))


@pytest.mark.slow
def test_laplacian_equals_the_trace_of_the_hessian(params: Any, walkers: jax.Array):
    """Value, gradient in the shape of the point, and Laplacian, plain and under jit."""
    jet = fwdlap.laplacian(lambda r: log_psi(params, r))
    value, gradient, laplacian = jax.jit(partial(exact, lambda r: log_psi(params, r)))(walkers[0])
    for run in (jet, jax.jit(jet)):
        got = run(walkers[0])
        assert got.gradient.shape == walkers[0].shape
        assert_close(got, (value, gradient.reshape(walkers[0].shape), laplacian))


def test_vmap_over_walkers_gives_each_walker_its_own_laplacian(params: Any, walkers: jax.Array):
    """A batch is what its walkers are alone."""
    jet = jax.jit(fwdlap.laplacian(lambda r: log_psi(params, r)))
    batch = jax.jit(jax.vmap(jet))(walkers)
    alone = [jet(r) for r in walkers]
    assert_close(batch, jax.tree.map(lambda *x: jnp.stack(x), *alone))


@pytest.mark.slow
def test_the_laplacian_is_differentiable(params: Any, walkers: jax.Array):
    """Reverse mode over the forward Laplacian equals reverse mode over the Hessian's trace."""

    def ours(p: Any) -> jax.Array:
        return fwdlap.laplacian(lambda r: log_psi(p, r))(walkers[0]).laplacian

    def oracle(p: Any) -> jax.Array:
        return exact(lambda r: log_psi(p, r), walkers[0])[2]

    found, expected = (jax.jit(jax.grad(way))(params) for way in (ours, oracle))
    assert_close(found, expected, rtol=1e-7)


def several(x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """A pytree with a smooth leaf, a leaf without inputs and an integer leaf."""
    return {"a": jnp.sin(x) * y, "b": (jnp.ones(2), jnp.arange(3)), "c": x @ x}


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_lap_pushes_given_derivatives_through_any_pytree(wrap: Any):
    """J' and L' of a composition are those of the outer function seeded with the inner's."""
    x = jax.random.normal(jax.random.key(2), (3,))

    def inner(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sin(x), x * x[::-1]

    values, jacobians, laplacians = exact(inner, x)
    got = wrap(lambda v, j, s: fwdlap.lap(several, v, j, s))(values, jacobians, laplacians)
    value, jacobian, laplacian = exact(lambda x: several(*inner(x)), x)
    for leaf in ("a", "c"):
        assert_close([part[leaf] for part in got], [value[leaf], jacobian[leaf], laplacian[leaf]])
    np.testing.assert_array_equal(got[1]["b"][0], np.zeros((3, 2)))
    np.testing.assert_array_equal(got[0]["b"][1], np.arange(3))


def test_symbolic_zeros_equal_dense_zeros():
    """A zero known at trace time changes the work, not the answer."""
    x, y = jax.random.normal(jax.random.key(3), (2, 3))
    zero = fwdlap.zero_tangent_from_primal(x)
    eye = jnp.eye(3)
    symbolic = fwdlap.lap(several, (x, y), (eye, zero), (zero, zero))
    filled = fwdlap.lap(several, (x, y), (eye, jnp.zeros((3, 3))), (jnp.zeros(3), jnp.zeros(3)))
    for a, b in zip(jax.tree.leaves(symbolic), jax.tree.leaves(filled), strict=True):
        np.testing.assert_allclose(a, b)


@pytest.mark.slow
def test_lap_partial_sums_over_slices_of_the_directions(params: Any, walkers: jax.Array):
    """The Laplacian is a sum over directions, so a loop over slices of them gives it too."""
    r = walkers[0].reshape(-1)
    zero = fwdlap.zero_tangent_from_primal(r)
    eye = jnp.eye(r.size).reshape(3, -1, r.size)

    @jax.jit
    def sliced(r: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, push = fwdlap.lap_partial(
            lambda x: log_psi(params, x.reshape(-1, 3)), (r,), (eye[0],), (zero,)
        )

        def body(i: jax.Array, total: jax.Array) -> jax.Array:
            return total + push((eye[i],), (zero,))[1]

        return value, jax.lax.fori_loop(0, 3, body, jnp.zeros(()))

    value, _, laplacian = exact(lambda r: log_psi(params, r), walkers[0])
    assert_close(sliced(r), (value, laplacian))
