"""The project's own wave functions, whose kinetic energy is what fwdlap is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import ANSATZE, small_psiformer
from tests.fwdlap.oracles import exact
from tests.matrix import rest
from tests.wavefunctions import Clamped
from vmcjob import fwdlap
from vmcjob.vmc.ansatz.determinants import sum_of_determinants
from vmcjob.vmc.system import System

ATOM = ((0.0, 0.0, 0.0),)
PAIR = ((0.0, 0.0, 0.0), (0.0, 0.0, 1.4))


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [
        pytest.param(System(ATOM, (1,), 1, 0), id="H", marks=pytest.mark.full_matrix),
        pytest.param(System(ATOM, (2,), 1, 1), id="He", marks=pytest.mark.full_matrix),
        pytest.param(System(PAIR, (1, 1), 1, 1), id="H2", marks=pytest.mark.full_matrix),
        pytest.param(System(ATOM, (2,), 2, 0), id="triplet He", marks=pytest.mark.full_matrix),
        # All that the others have, and more.
        pytest.param(System(PAIR, (3, 1), 2, 2), id="LiH", marks=pytest.mark.slow),
    ],
)
# FermiNet and Psiformer: the next two tests.
@pytest.mark.parametrize("name", ["slater-jastrow", *rest("ferminet", "psiformer")])
def test_an_ansatz_has_the_derivatives_of_jax(name: str, system: System) -> None:
    """Value, gradient and Laplacian of three walkers."""
    compare_with_jax(ANSATZE[name](system), system)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ferminet", *rest("psiformer", "slater-jastrow")])
def test_determinants_of_either_spin_have_the_derivatives_of_jax(name: str) -> None:
    """Products of determinants of different sizes, summed."""
    system = System(PAIR, (3, 1), 3, 1)
    compare_with_jax(ANSATZE[name](system, full_determinants=False), system)


@pytest.mark.slow
def test_layer_norm_has_the_derivatives_of_jax() -> None:
    """A Psiformer with the option that no other test takes."""
    system = System(PAIR, (3, 1), 2, 2)
    compare_with_jax(small_psiformer(system, layer_norm=True), system)


def test_determinants_take_the_closed_form_behind_their_own_derivative() -> None:
    """By two jvps they would cost ten times as much, and solve triangular systems by the batch."""
    stack = jax.random.normal(jax.random.key(0), (4, 10, 10))
    front = fwdlap.laplacian(lambda x: sum_of_determinants((x * stack,)).log_abs)
    assert "triangular_solve" not in str(jax.make_jaxpr(front)(stack[0]))


@pytest.mark.slow
def test_a_singular_determinant_beside_others_adds_nothing() -> None:
    """0 · ∞ must not spoil the sum: far from all nuclei one determinant underflows first."""
    stack = jax.random.normal(jax.random.key(0), (2, 4, 4))
    x = jnp.ones((4, 4))
    alone, beside = (
        jax.jit(fwdlap.laplacian(lambda x, of=of: sum_of_determinants((x * of,)).log_abs))(x)
        for of in (stack[:1], stack.at[1].set(0.0))
    )
    np.testing.assert_allclose(beside.gradient, alone.gradient, rtol=1e-12)
    np.testing.assert_allclose(beside.laplacian, alone.laplacian, rtol=1e-12)


def compare_with_jax(net: Clamped, system: System) -> None:
    """Value, gradient and Laplacian by fwdlap and by JAX's own derivatives, to 1e-9."""
    r = jax.random.normal(jax.random.key(1), (3, system.n_electrons, 3))
    params = jax.jit(net.init)(jax.random.key(0), r[0])
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)  # no term is silent

    def log_psi(x: jax.Array) -> jax.Array:
        return net.log_psi(params, x)

    def by_jax(x: jax.Array) -> fwdlap.Jet:
        value, gradient, laplacian = exact(log_psi, x)
        return fwdlap.Jet(value, gradient.reshape(x.shape), laplacian)

    @jax.jit
    def both(r: jax.Array) -> tuple[fwdlap.Jet, fwdlap.Jet]:
        return jax.vmap(fwdlap.laplacian(log_psi))(r), jax.vmap(by_jax)(r)

    for ours, expected in zip(*both(r), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)
