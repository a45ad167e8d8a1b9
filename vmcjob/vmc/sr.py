"""Stochastic reconfiguration: the natural gradient of VMC, its linear system solved by CG.

With the centred score O = ∂ log|ψ|/∂θ − ⟨∂ log|ψ|/∂θ⟩ of every walker,

    S = ⟨O Oᵀ⟩,    g = ⟨(E_loc − ⟨E_loc⟩) O⟩ = ½ ∂E/∂θ,    δθ = −η (S + λ)⁻¹ g

(Sorella, PRL 80, 4558 (1998); arXiv:1909.02487, appendix C, whose Fisher matrix F is 4 S).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LogPsi, OptimizerState, Params, UpdateInfo
from vmcjob.vmc.energy import Clipping, centred
from vmcjob.vmc.schedule import LearningRate
from vmcjob.vmc.scores import PerWalker, Scores, Vector, dense_scores, lazy_scores


def multiply_overlap(scores: Scores, v: Vector, n_walkers: int) -> Vector:
    """S v, averaged over the `n_walkers` walkers of each of all devices; inside pmap."""
    return devices.mean(scores.apply_transpose(centred(scores.apply(v))) / n_walkers)


class SrState(NamedTuple):
    """The last natural gradient, from which the next solve starts."""

    direction: Vector


@dataclass(frozen=True)
class StochasticReconfiguration:
    """SR by conjugate gradients (an `Optimizer`).

    Args:
        log_psi: one walker's log|ψ|.
        learning_rate: η in hartree⁻¹, an imaginary time step.
        damping: λ, added to the diagonal of S.
        norm_constraint: upper limit of δθᵀ S δθ, the squared change of ψ in its own norm.
        clipping: of local energies.
        is_lazy: whether scores are a pair of products, or a matrix.
        cg_iterations: upper limit of conjugate-gradient iterations.
        cg_tolerance: residual, relative to the gradient, at which the iterations end.
    """

    log_psi: LogPsi
    learning_rate: LearningRate
    damping: float
    norm_constraint: float
    clipping: Clipping
    is_lazy: bool
    cg_iterations: int
    cg_tolerance: float

    def init(self, params: Params) -> SrState:
        """No direction yet."""
        return SrState(jnp.zeros_like(ravel_pytree(params)[0]))

    def update(
        self,
        params: Params,
        state: OptimizerState,
        r: Float[Array, "walker elec 3"],
        e_loc: PerWalker,
        step: Array,
    ) -> tuple[Params, SrState, UpdateInfo]:
        """One SR step; inside pmap. See `Optimizer.update`."""
        scores = (lazy_scores if self.is_lazy else dense_scores)(self.log_psi, params, r)
        clipped, n_clipped = self.clipping.apply(e_loc)
        n_walkers = r.shape[0]
        gradient = devices.mean(scores.apply_transpose(centred(clipped)) / n_walkers)
        direction, _ = cg(
            lambda v: multiply_overlap(scores, v, n_walkers) + self.damping * v,
            gradient,
            x0=state.direction,
            maxiter=self.cg_iterations,
            tol=self.cg_tolerance,
        )
        change = jnp.vdot(direction, multiply_overlap(scores, direction, n_walkers))
        limit = self.learning_rate.limit(step, self.norm_constraint)
        eta = limited(self.learning_rate(step), change, limit)
        flat, unravel = ravel_pytree(params)
        delta = -eta * direction
        info = UpdateInfo(2.0 * jnp.linalg.norm(gradient), jnp.linalg.norm(delta), eta, n_clipped)
        return unravel(flat + delta), SrState(direction), info


def limited(eta: Array, square: Array, limit: Array | float) -> Array:
    """The step length η, or a shorter one with η² · square = limit."""
    return eta * jnp.minimum(1.0, jnp.sqrt(limit / (eta**2 * square)))
