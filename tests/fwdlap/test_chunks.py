"""Chunks of walkers change the memory, not the numbers; float32 keeps its digits near nodes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.matrix import rest
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


@pytest.mark.parametrize(
    ("n", "fitting", "size"), [(10, 0, 1), (10, None, 10), (10, 3, 2), (10, 4, 5), (11, 4, 4)]
)
def test_chunks_follow_the_budget(n: int, fitting: int | None, size: int):
    """A budget of nothing still runs, one walker at a time; a divisor near the budget leaves no
    rest; where there is none, chunks are about equal."""
    r = walkers(n)
    assert fwdlap.chunk_size(kinetic, r, budget_bytes=budget_of(fitting, r)) == size


def budget_of(fitting: int | None, r: jax.Array) -> int | None:
    """So many bytes as so many walkers need at a time."""
    return None if fitting is None else fitting * fwdlap.peak_bytes(kinetic, r)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "fitting"), [(11, 4), *rest((10, 0), (10, None), (10, 3), (10, 4))])
def test_chunks_give_the_same_energies(n: int, fitting: int | None):
    """Also of the walkers that are left over."""
    r = walkers(n)
    chunked = jax.jit(fwdlap.over_walkers(kinetic, budget_of(fitting, r)))(r)
    np.testing.assert_allclose(chunked, jax.jit(jax.vmap(kinetic))(r), rtol=1e-10)


@pytest.mark.parametrize(("share", "n_loops"), [(2, 1), (10**6, 1), *rest((1, 0))])
def test_directions_are_sliced_where_one_walker_exceeds_the_budget(share: int, n_loops: int):
    """Down to one direction at a time: the same numbers, in less memory."""
    (r,) = walkers(1)

    def whole(x: jax.Array) -> tuple[jax.Array, ...]:
        return fwdlap.laplacian(log_psi)(x)

    def sliced(x: jax.Array) -> tuple[jax.Array, ...]:
        return fwdlap.laplacian(log_psi, peak // share)(x)

    peak = fwdlap.peak_bytes(whole, r[None])
    assert str(jax.make_jaxpr(sliced)(r)).count("= scan[") == n_loops
    for ours, theirs in zip(jax.jit(sliced)(r), jax.jit(whole)(r), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    memory, before = (jax.jit(fun).lower(r).compile().memory_analysis() for fun in (sliced, whole))
    if n_loops and memory and before:
        assert memory.temp_size_in_bytes < before.temp_size_in_bytes


def by_jvp_of_grad(r: jax.Array) -> jax.Array:
    """The loop over Hessian-vector products, whose accuracy is the mark to meet."""
    gradient = jax.grad(lambda x: log_psi(x.reshape(r.shape)))
    value, push = jax.linearize(gradient, r.reshape(-1))
    return -0.5 * (jnp.trace(jax.vmap(push)(jnp.eye(r.size, dtype=r.dtype))) + jnp.sum(value**2))


@pytest.mark.slow
def test_float32_keeps_its_digits_where_determinants_nearly_vanish():
    """J² and tr(MM) cancel near a node of one determinant; with the plain inverse they do not
    round alike: its 95th percentile is 1.3 to 1.5 times that of the loop, as the version of JAX
    will have it, where ours is 1.05 to 1.2 times."""
    single = walkers(6000).astype(jnp.float32)
    exact = np.asarray(jax.jit(jax.vmap(kinetic))(single.astype(jnp.float64)))

    def error(energy: Callable[[jax.Array], jax.Array]) -> float:
        found = np.asarray(jax.jit(jax.vmap(energy))(single))
        assert found.dtype == np.float32
        return float(np.percentile(np.abs(found / exact - 1.0), 95.0))

    ours, foil = error(kinetic), error(by_jvp_of_grad)
    assert ours < 1.25 * foil
