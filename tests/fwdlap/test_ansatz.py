"""The project's own wave functions, whose kinetic energy is what fwdlap is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmcjob import fwdlap
from vmcjob.vmc.ansatz import make_log_psi
from vmcjob.vmc.ansatz.ferminet import FermiNet
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
@pytest.mark.parametrize("is_vmapped", [False, True])
def test_ferminet_equals_its_dense_hessian(system: System, is_vmapped: bool) -> None:
    """Value, gradient and Laplacian at three walkers, alone and as a jitted batch."""
    net = FermiNet(system, 2, 2, 6, 3, jastrow=True)
    r = jax.random.normal(jax.random.key(1), (3, system.n_electrons, 3))
    params = net.init(jax.random.key(0), r[0])

    def log_psi(x: jax.Array) -> jax.Array:
        return make_log_psi(net)(params, x)

    def dense(x: jax.Array) -> fwdlap.Jet:
        hessian = jax.hessian(lambda flat: log_psi(flat.reshape(x.shape)))(x.reshape(-1))
        return fwdlap.Jet(log_psi(x), jax.grad(log_psi)(x), jnp.trace(hessian))

    jet = fwdlap.laplacian(log_psi)
    found = jax.jit(jax.vmap(jet))(r) if is_vmapped else jet(r[0])
    expected = jax.vmap(dense)(r) if is_vmapped else dense(r[0])
    for ours, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-9, atol=1e-9)
