"""The steps of a run: what they tell about numbers that are not finite."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from tests.updates import Updating
from tests.wavefunctions import make_vmc
from vmcjob.columns import Column
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import (
    Batch,
    ChainState,
    LoopState,
    Made,
    Metric,
    Optimizer,
    Proposal,
)
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.update import UpdateRule


@dataclass(frozen=True)
class Breaking:
    """An optimizer whose third update is not a number."""

    columns: ClassVar[Mapping[str, Column]] = {}

    @property
    def metric(self) -> Metric:
        return "euclidean"

    def init(self, params: Array) -> Array:
        return jnp.zeros_like(params)

    def propose(self, params: Array, state: Array, batch: Batch) -> Proposal:
        direction = jnp.where(batch.step == 2, jnp.nan, jnp.zeros(1))
        return Proposal(direction, jnp.zeros(()), direction, memory=state)

    def remember(self, proposal: Proposal, made: Made) -> Array:
        return proposal.memory


def log_psi(a: Array, r: Array) -> Array:
    return -a * jnp.sum(r**2)


def start_of(optimizer: Optimizer, energy: float) -> tuple[Vmc, LoopState]:
    """A calculation whose local energies are all the same."""
    options = {"seed": 0, "moves": Moves(1), "target_acceptance": 0.5}
    updating = Updating(log_psi, optimizer, UpdateRule(Decay(0.1, 1.0)))
    vmc = make_vmc(log_psi, lambda a, r: energy + 0.0 * a, updating, **options)
    a = jnp.ones(())
    r = jax.random.normal(jax.random.key(0), (8, 2, 3))
    chain = ChainState(devices.shard(r), devices.replicate(jnp.ones(())))
    return vmc, LoopState(devices.replicate(a), devices.replicate(optimizer.init(a)), chain)


def test_parameters_that_are_not_finite_are_told_of() -> None:
    """At once, though the energy was measured before the update and is as it should be."""
    vmc, state = start_of(Breaking(), -1.0)
    infos = [devices.unreplicate(done.info) for done in iterate(vmc.train_step(), state, 0, 3)]
    assert [bool(info.is_finite) for info in infos] == [True, True, False]
    assert [float(info.energy) for info in infos] == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("energy", [jnp.nan, jnp.inf])
def test_energies_that_are_not_finite_are_told_of(energy: float) -> None:
    """In evaluation too, where nothing else could show it."""
    vmc, state = start_of(Breaking(), energy)
    (done,) = iterate(vmc.evaluate_step(), state, 0, 1)
    assert not devices.unreplicate(done.info).is_finite
