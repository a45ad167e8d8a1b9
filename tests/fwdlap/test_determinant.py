"""Determinants by elimination against NumPy's in double precision, and against JAX's own."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fwdlap.oracles import check, exact
from vmcjob import fwdlap
from vmcjob.fwdlap.elimination import MAX_ELIMINATED
from vmcjob.fwdlap.linalg import inverse_factors, is_slogdet

ELIMINATED = 1, 2, 3, 4, 8, MAX_ELIMINATED
SIZES = *ELIMINATED, MAX_ELIMINATED + 1


def matrices(n: int) -> np.ndarray:
    """200 of them; permutations have no first pivot, and others are far from one in size."""
    random = np.random.default_rng(n)
    found = random.normal(size=(200, n, n))
    found[:20] = [np.eye(n)[random.permutation(n)] for _ in range(20)]
    found[20:40] *= 10.0 ** random.uniform(-20, 5, size=(20, 1, 1))
    return found.astype(np.float32)


@pytest.mark.parametrize("n", SIZES)
def test_it_is_the_determinant(n: int) -> None:
    """To what rounding makes of it, by its condition, and of its logarithm."""
    a = matrices(n)
    sign, log_abs = jax.jit(fwdlap.slogdet)(a)
    exact_sign, exact = np.linalg.slogdet(a.astype(np.float64))
    allowed = 20 * n * np.finfo(np.float32).eps * np.linalg.cond(a.astype(np.float64))
    assert np.all(np.abs(log_abs - exact) <= allowed + 1e-4)
    np.testing.assert_array_equal(sign[allowed < 0.5], exact_sign[allowed < 0.5])


@pytest.mark.parametrize("n", ELIMINATED)
def test_a_singular_matrix_has_no_logarithm_and_no_derivative(n: int) -> None:
    """As with JAX's own: its sign is zero, and nothing becomes NaN."""
    a = matrices(n)[100]

    @jax.jit
    def both(x: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        return fwdlap.slogdet(x), jax.grad(lambda x: fwdlap.slogdet(x)[1])(x)

    for singular in (np.zeros_like(a), np.where(np.arange(n)[:, None] == n - 1, 0.0, a)):
        (sign, log_abs), change = both(jnp.asarray(singular))
        assert (float(sign), float(log_abs)) == (0.0, -np.inf)
        np.testing.assert_array_equal(change, 0.0)


@pytest.mark.parametrize("n", SIZES)
def test_its_factors_are_those_of_the_inverse(n: int) -> None:
    """U⁻¹ times L⁻¹ P; and of a singular matrix they are numbers all the same."""
    a = matrices(n).astype(np.float64)
    left, right = (
        np.asarray(x, np.float64) for x in jax.jit(inverse_factors)(jnp.asarray(matrices(n)))
    )
    assert np.all(np.tril(right, -1) == 0.0)
    allowed = 20 * n * np.finfo(np.float32).eps * np.linalg.cond(a)
    error = np.linalg.norm(right @ left @ a - np.eye(n), axis=(1, 2))
    assert np.all(error <= allowed)
    singular = jax.jit(inverse_factors)(jnp.zeros((n, n)))
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in singular)


@pytest.mark.parametrize("n", [2, 4, MAX_ELIMINATED + 1])
def test_its_laplacian_is_that_of_jax(n: int, float64) -> None:
    """Of one and of many at once."""
    weights = np.random.default_rng(1).normal(size=(6, n, n))

    def of(slogdet):
        return lambda x: slogdet(jnp.sin(jnp.tensordot(x, weights, 1)) + jnp.eye(n))[1]

    x = jnp.asarray(np.random.default_rng(2).normal(size=(5, 6)))

    @jax.jit
    def both(x: jax.Array) -> tuple[fwdlap.Jet, Any]:
        jets = jax.vmap(fwdlap.laplacian(of(fwdlap.slogdet)))(x)
        return jets, jax.vmap(partial(exact, of(jnp.linalg.slogdet)))(x)

    found, (_, gradients, laplacians) = both(x)
    np.testing.assert_allclose(found.laplacian, laplacians, rtol=1e-8)
    np.testing.assert_allclose(found.gradient, gradients, rtol=1e-8)


@pytest.mark.usefixtures("on_cpus")
@pytest.mark.parametrize("n", ELIMINATED)
def test_the_rule_for_determinants_knows_it(n: int) -> None:
    """Alone and of a batch: the walk along derivatives would be many times slower."""
    a = jnp.asarray(matrices(n)[:3])
    for function, x in ((fwdlap.slogdet, a), (jax.vmap(fwdlap.slogdet), a)):
        eqn, *barriers = jax.make_jaxpr(function)(x).eqns
        assert is_slogdet(eqn)
        assert {barrier.primitive.name for barrier in barriers} == {"optimization_barrier"}


@pytest.mark.parametrize("n", [3, MAX_ELIMINATED + 1])
def test_a_complex_determinant_has_a_phase_that_turns(n: int) -> None:
    """Its sign is no constant, as of real matrices: s = exp(i Im log det) has both derivatives."""
    random = np.random.default_rng(n)
    waves = jnp.asarray(random.normal(size=(n, n, 3)))
    shift = jnp.asarray(random.normal(size=(n, n)) + 1j * random.normal(size=(n, n)))

    def parts(r: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        sign, log_abs = jnp.linalg.slogdet(jnp.exp(1j * waves @ r**2) + shift)
        return jnp.real(sign), jnp.imag(sign), log_abs

    check(parts, jnp.asarray([0.3, -0.2, 0.5]))


@pytest.mark.parametrize("n", [2, 8, MAX_ELIMINATED + 1])
def test_a_distant_electron_has_second_derivatives(n: int) -> None:
    """Its orbitals are small: their square is zero in float32, and must not be divided by."""
    a, b = matrices(n)[50:52]
    size = np.where(np.arange(n) == n // 2, 1e-25, 1.0)[:, None].astype(np.float32)

    def log_abs(x: jax.Array) -> jax.Array:
        return fwdlap.slogdet(size * (a + x * b))[1]

    found = jax.jit(jax.grad(jax.grad(log_abs)))(jnp.zeros((), jnp.float32))
    ratio = np.linalg.solve(a.astype(np.float64), b)
    assert float(found) == pytest.approx(-np.trace(ratio @ ratio), rel=1e-2)
