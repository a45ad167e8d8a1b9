"""Pretraining brings a network near Hartree–Fock."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.ansatze import small_ferminet
from tests.matrix import rest
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState
from vmcjob.vmc.hartree_fock import Coefficients, solve
from vmcjob.vmc.hartree_fock import make_orbitals as make_target
from vmcjob.vmc.loop import iterate
from vmcjob.vmc.pretrain import HartreeFockSetting, Pretraining
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.system import System, deviates, initial_positions, nuclei_of

LITHIUM = System(((0.0, 0.0, 0.0),), (3,), 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("is_full", [True, *rest(False)])
def test_after_pretraining_the_network_is_the_hartree_fock_determinant(is_full) -> None:
    """log|ψ| differs from that of Hartree–Fock by little more than a constant: its norm.

    For half of the walkers at least: near a node the logarithm forgives nothing.
    """
    solution = solve(LITHIUM, "cc-pvdz")
    network = small_ferminet(LITHIUM, 1, is_full, jastrow=False)
    target = make_target(LITHIUM, solution.basis, is_full)
    setting = HartreeFockSetting(nuclei_of(LITHIUM), Coefficients.of(solution))
    orbitals = lambda params, r, nuclei: network.orbitals(params, r)  # noqa: E731 -- nuclei stay
    pretraining = Pretraining(orbitals, target, setting, optax.adam(1e-2), 0, Moves(5), 0.5)
    r = initial_positions(LITHIUM, deviates(LITHIUM, jax.random.key(1), 128))
    params = jax.jit(network.init)(jax.random.key(0), r[0])
    chain = ChainState(devices.shard(r), devices.replicate(jnp.asarray(0.3, r.dtype)))
    state = LoopState(*devices.replicate((params, pretraining.init(params))), chain)
    losses = []
    for done in iterate(pretraining.step(), state, 0, 300):
        state = done.state
        losses.append(float(devices.unreplicate(done.info).loss))
    r = jnp.asarray(devices.gather(state.chain.r))

    @jax.jit
    def spread(params):
        log_psi = jax.vmap(network.log_psi, (None, 0))(params, r)
        wanted = jax.vmap(pretraining.log_target(setting), (None, 0))(None, r)
        difference = log_psi - wanted
        return jnp.median(jnp.abs(difference - jnp.median(difference)))

    assert np.mean(losses[-10:]) < 0.05 * losses[0]
    assert spread(devices.unreplicate(state.params)) < 0.25
    assert spread(params) > 0.5
