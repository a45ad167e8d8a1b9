"""The project's own wave functions, whose kinetic energy is what fwdlap is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import ANSATZE, small_psiformer
from vmcjob import fwdlap
from vmcjob.vmc.ansatz import WaveFunction, make_log_psi
from vmcjob.vmc.system import System

ATOM = ((0.0, 0.0, 0.0),)
PAIR = ((0.0, 0.0, 0.0), (0.0, 0.0, 1.4))


@pytest.mark.parametrize(
    "system",
    [
        System(ATOM, (1,), 1, 0),
        System(ATOM, (2,), 1, 1),
        System(PAIR, (1, 1), 1, 1),
        System(ATOM, (2,), 2, 0),
        System(PAIR, (3, 1), 2, 2),
    ],
    ids=["H", "He", "H2", "triplet He", "LiH"],
)
@pytest.mark.parametrize("name", list(ANSATZE))
def test_an_ansatz_equals_its_dense_hessian(name: str, system: System) -> None:
    """Value, gradient and Laplacian of three walkers."""
    compare_with_dense_hessian(ANSATZE[name](system), system)


@pytest.mark.parametrize("name", list(ANSATZE))
def test_determinants_of_either_spin_equal_their_dense_hessian(name: str) -> None:
    """Products of determinants of different sizes, summed."""
    system = System(PAIR, (3, 1), 3, 1)
    compare_with_dense_hessian(ANSATZE[name](system, full_determinants=False), system)


def test_layer_norm_equals_its_dense_hessian() -> None:
    """The option that no other test takes."""
    system = System(ATOM, (2,), 1, 1)
    compare_with_dense_hessian(small_psiformer(system, layer_norm=True), system)


def compare_with_dense_hessian(net: WaveFunction, system: System) -> None:
    """Value, gradient and Laplacian by fwdlap and by JAX's own derivatives, to 1e-9."""
    r = jax.random.normal(jax.random.key(1), (3, system.n_electrons, 3))
    params = jax.jit(net.init)(jax.random.key(0), r[0])
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)  # no term is silent

    def log_psi(x: jax.Array) -> jax.Array:
        return make_log_psi(net)(params, x)

    def dense(x: jax.Array) -> fwdlap.Jet:
        hessian = jax.hessian(lambda flat: log_psi(flat.reshape(x.shape)))(x.reshape(-1))
        return fwdlap.Jet(log_psi(x), jax.grad(log_psi)(x), jnp.trace(hessian))

    @jax.jit
    def both(r: jax.Array) -> tuple[fwdlap.Jet, fwdlap.Jet]:
        return jax.vmap(fwdlap.laplacian(log_psi))(r), jax.vmap(dense)(r)

    for ours, exact in zip(*both(r), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-9, atol=1e-9)
