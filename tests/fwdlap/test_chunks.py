"""Chunks of walkers change the memory, not the numbers; float32 keeps its digits near nodes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmcjob import fwdlap


def log_psi(r: jax.Array) -> jax.Array:
    """A sum of eight determinants of smooth orbitals of all electrons."""
    weight = jnp.asarray(np.random.default_rng(0).normal(size=(8, 3, len(r))), r.dtype)
    field = r + 0.3 * jnp.sum(jnp.sin(r), axis=0, keepdims=True)
    sign, log = jnp.linalg.slogdet(jnp.tanh(field @ weight))
    return jnp.log(jnp.abs(jnp.sum(sign * jnp.exp(log - jnp.max(log)))))


def kinetic(r: jax.Array) -> jax.Array:
    jet = fwdlap.laplacian(log_psi)(r)
    return -0.5 * (jet.laplacian + jnp.sum(jet.gradient**2))


def walkers(n: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).normal(size=(n, 6, 3)))


@pytest.mark.parametrize(("budget", "size"), [(1, 1), (None, 10), ("third", 4)])
def test_chunks_follow_the_budget_and_give_the_same_energies(budget: int | str | None, size: int):
    """A budget of nothing still runs, one walker at a time; equal chunks leave no odd rest."""
    r = walkers(10)
    peak = fwdlap.peak_bytes(kinetic, r)
    given = 4 * peak if budget == "third" else budget
    assert fwdlap.chunk_size(kinetic, r, given) == size  # type: ignore[arg-type]
    chunked = jax.jit(fwdlap.over_walkers(kinetic, given))(r)  # type: ignore[arg-type]
    np.testing.assert_allclose(chunked, jax.vmap(kinetic)(r), rtol=1e-10)


def by_jvp_of_grad(r: jax.Array) -> jax.Array:
    """The loop over Hessian-vector products, whose accuracy is the mark to meet."""
    gradient = jax.grad(lambda x: log_psi(x.reshape(r.shape)))
    value, push = jax.linearize(gradient, r.reshape(-1))
    return -0.5 * (jnp.trace(jax.vmap(push)(jnp.eye(r.size, dtype=r.dtype))) + jnp.sum(value**2))


def test_float32_keeps_its_digits_where_determinants_nearly_vanish():
    """J² and tr(MM) cancel near a node of one determinant; with the plain inverse they do not
    round alike: its 95th percentile is 1.3 times that of the loop, where ours is 1.05 times."""
    single = walkers(6000).astype(jnp.float32)
    exact = np.asarray(jax.jit(jax.vmap(kinetic))(single.astype(jnp.float64)))

    def error(energy: Callable[[jax.Array], jax.Array]) -> float:
        found = np.asarray(jax.jit(jax.vmap(energy))(single))
        assert found.dtype == np.float32
        return float(np.percentile(np.abs(found / exact - 1.0), 95.0))

    ours, foil = error(kinetic), error(by_jvp_of_grad)
    assert ours < 1.15 * foil
