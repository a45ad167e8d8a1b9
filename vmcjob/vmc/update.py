"""From an optimizer's direction to better parameters: what all optimizers have in common."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc.contracts import (
    Batch,
    LogPsi,
    LoopState,
    Made,
    Optimizer,
    OptimizerState,
    Params,
    Proposal,
    Trust,
    UpdateInfo,
)
from vmcjob.vmc.energy import Clipping, centred
from vmcjob.vmc.schedule import LearningRate
from vmcjob.vmc.trust import shortened

CLIPPING: Final = Clipping(5.0, "median")


class Updated(NamedTuple):
    """Parameters and the optimizer's state after one update, and what is told about it."""

    params: Params
    optimizer: OptimizerState
    info: UpdateInfo
    trust: Trust
    told: dict[str, Array]  # by the optimizer's own columns


@dataclass(frozen=True)
class UpdateRule:
    """How an update is made of what an optimizer proposes.

    Args:
        learning_rate: η. In hartree⁻¹ an imaginary time step, for natural gradients.
        clipping: of local energies, before an optimizer sees them.
        norm_constraint: upper limit of η² |d|², the squared length of a step in the optimizer's
            own metric (`Optimizer.metric`); falls with the learning rate where that says so.
        min_ess: part of the walkers that must still count after an update, see `trust.shortened`;
            0: updates are made as they are.
    """

    learning_rate: LearningRate
    clipping: Clipping = CLIPPING
    norm_constraint: float = math.inf
    min_ess: float = 0.0

    def update(
        self,
        optimizer: Optimizer,
        log_psi: LogPsi,
        state: LoopState,
        log_abs: Float[Array, " walker"],
        e_loc: Float[Array, " walker"],
        step: Array,
    ) -> Updated:
        """Update number `step`, counted from 0, of a state with these log|ψ| and E_loc; in pmap."""
        clipped, n_clipped = self.clipping.apply(e_loc)
        batch = Batch(state.chain.r, log_abs, clipped, centred(clipped), step)
        proposal = optimizer.propose(state.params, state.optimizer, batch)
        made = self._made(proposal, step)
        params, trust = self._trusted(log_psi, state.params, made.delta, batch)
        info = UpdateInfo(
            jnp.linalg.norm(proposal.gradient),
            trust.part * jnp.linalg.norm(made.delta),
            proposal.share * made.eta,
            n_clipped,
        )
        memory = optimizer.remember(proposal, made)
        return Updated(params, memory, info, trust, dict(proposal.told))

    def _made(self, proposal: Proposal, step: Array) -> Made:
        """The step along a proposal that the learning rate and the norm constraint allow."""
        rate = eta = self.learning_rate(step)
        if math.isfinite(self.norm_constraint):
            limit = self.learning_rate.limit(step, self.norm_constraint)
            eta = limited(rate, proposal.square, limit)
        delta = proposal.share * (proposal.drift - eta * proposal.direction)
        return Made(delta, eta, rate)

    def _trusted(
        self, log_psi: LogPsi, old: Params, delta: Array, batch: Batch
    ) -> tuple[Params, Trust]:
        """The parameters after an update that the walkers bear."""
        flat, unravel = ravel_pytree(old)
        if self.min_ess == 0.0:
            nothing = jnp.full((), jnp.nan, batch.r.dtype)
            return unravel(flat + delta), Trust(nothing, jnp.ones((), batch.r.dtype))
        return shortened(log_psi, old, flat + delta, batch, self.min_ess)


def limited(eta: Array, square: Array, limit: Array | float) -> Array:
    """The step length η, or a shorter one with η² · square = limit."""
    return eta * jnp.minimum(1.0, jnp.sqrt(limit / (eta**2 * square)))
