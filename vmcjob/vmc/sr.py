"""Stochastic reconfiguration: the natural gradient of VMC, by conjugate gradients.

With the centred score O = ∂ log|ψ|/∂θ − ⟨∂ log|ψ|/∂θ⟩ of each walker,

    S = ⟨O Oᵀ⟩,    g = ⟨(E_loc − ⟨E_loc⟩) O⟩ = ½ ∂E/∂θ,    δθ = −η (S + λ)⁻¹ g

(Sorella, PRL 80, 4558 (1998); arXiv:1909.02487, appendix C, whose Fisher matrix F is 4 S).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax.scipy.sparse.linalg import cg

from vmcjob.columns import Column
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, LogPsi, Made, Metric, OptimizerState, Params, Proposal
from vmcjob.vmc.energy import centred
from vmcjob.vmc.scores import Scores, Vector, dense_scores, lazy_scores, no_direction


def multiply_overlap(scores: Scores, v: Vector, n_walkers: int) -> Vector:
    """S v, averaged over all devices with `n_walkers` walkers each; inside pmap."""
    return devices.mean(scores.apply_transpose(centred(scores.apply(v))) / n_walkers)


class SrState(NamedTuple):
    """The last natural gradient, the starting point of the next solution."""

    direction: Vector


@dataclass(frozen=True)
class StochasticReconfiguration:
    """SR by conjugate gradients (an `Optimizer`).

    Args:
        log_psi: one walker's log|ψ|.
        damping: λ, added to the diagonal of S.
        is_lazy: whether scores are a pair of products, or a matrix.
        cg_iterations: maximum number of conjugate-gradient iterations.
        cg_tolerance: residual, relative to the gradient, at which the iterations end.
    """

    columns: ClassVar[Mapping[str, Column]] = {
        "cg_residual": Column("1", "residual of the linear system, relative to the gradient")
    }

    log_psi: LogPsi
    damping: float
    is_lazy: bool
    cg_iterations: int
    cg_tolerance: float

    @property
    def metric(self) -> Metric:
        """δθᵀ S δθ, the squared change of ψ in its own norm."""
        return "overlap"

    def init(self, params: Params) -> SrState:
        """The state without a direction."""
        return SrState(no_direction(params))

    def propose(self, params: Params, state: OptimizerState, batch: Batch) -> Proposal:
        """The natural gradient; inside pmap. See `Optimizer.propose`."""
        scores = (lazy_scores if self.is_lazy else dense_scores)(self.log_psi, params, batch.r)
        n_walkers = batch.r.shape[0]
        gradient = devices.mean(scores.apply_transpose(batch.deviations) / n_walkers)
        direction, _ = cg(
            lambda v: multiply_overlap(scores, v, n_walkers) + self.damping * v,
            gradient,
            x0=state.direction,
            maxiter=self.cg_iterations,
            tol=self.cg_tolerance,
            # A residual this small counts as zero, before its square underflows and 0/0 results.
            atol=float(jnp.finfo(gradient.dtype).tiny) ** 0.4,
        )
        overlap = multiply_overlap(scores, direction, n_walkers)
        left = jnp.linalg.norm(gradient - overlap - self.damping * direction)
        size = jnp.linalg.norm(gradient)
        told = {"cg_residual": jnp.where(size > 0.0, left / size, left)}
        return Proposal(direction, jnp.vdot(direction, overlap), 2.0 * gradient, told=told)

    def remember(self, proposal: Proposal, made: Made) -> SrState:
        """The direction, independent of the length of the step."""
        del made
        return SrState(proposal.direction)
