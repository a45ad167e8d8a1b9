"""The project's own wave functions, whose kinetic energy is what fwdlap is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import small_ferminet
from vmcjob import fwdlap
from vmcjob.vmc.ansatz import make_log_psi
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
def test_ferminet_equals_its_dense_hessian(system: System) -> None:
    """Value, gradient and Laplacian of three walkers."""
    net = small_ferminet(system)
    r = jax.random.normal(jax.random.key(1), (3, system.n_electrons, 3))
    params = jax.jit(net.init)(jax.random.key(0), r[0])

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
