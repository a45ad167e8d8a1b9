"""Updates of parameters from an optimizer's direction: the part that all optimizers share."""

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
    """Parameters and optimizer state after an update, with its report."""

    params: Params
    optimizer: OptimizerState
    info: UpdateInfo
    trust: Trust
    told: dict[str, Array]  # the optimizer's own columns


@dataclass(frozen=True)
class UpdateRule:
    """The rule that turns an optimizer's proposal into an update.

    Args:
        learning_rate: η. For natural gradients, an imaginary time step in hartree⁻¹.
        clipping: of local energies, before an optimizer uses them.
        norm_constraint: upper limit of η² |d|², the squared length of a step in the optimizer's
            metric (`Optimizer.metric`); some learning rates lower it with η.
        min_ess: smallest effective sample size after an update, see `trust.shortened`; with 0,
            updates are never shortened.
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
        """Update number `step`, counted from 0, of a state with given log|ψ| and E_loc; in pmap."""
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
        """The step along a proposal that learning rate and norm constraint allow."""
        rate = eta = self.learning_rate(step)
        if math.isfinite(self.norm_constraint):
            limit = self.learning_rate.limit(step, self.norm_constraint)
            eta = limited(rate, proposal.square, limit)
        delta = proposal.share * (proposal.drift - eta * proposal.direction)
        return Made(delta, eta, rate)

    def _trusted(
        self, log_psi: LogPsi, old: Params, delta: Array, batch: Batch
    ) -> tuple[Params, Trust]:
        """The parameters after an update that keeps the effective sample size."""
        flat, unravel = ravel_pytree(old)
        if self.min_ess == 0.0:
            nothing = jnp.full((), jnp.nan, batch.r.dtype)
            return unravel(flat + delta), Trust(nothing, jnp.ones((), batch.r.dtype))
        return shortened(log_psi, old, flat + delta, batch, self.min_ess)


def limited(eta: Array, square: Array, limit: Array | float) -> Array:
    """The step length η, or a shorter one with η² · square = limit."""
    return eta * jnp.minimum(1.0, jnp.sqrt(limit / (eta**2 * square)))
