"""Stochastic reconfiguration: the natural gradient of VMC, its linear system solved by CG.

With the centred score O = ∂ log|ψ|/∂θ − ⟨∂ log|ψ|/∂θ⟩ of every walker,

    S = ⟨O Oᵀ⟩,    g = ⟨(E_loc − ⟨E_loc⟩) O⟩ = ½ ∂E/∂θ,    δθ = −η (S + λ)⁻¹ g

(Sorella, PRL 80, 4558 (1998); arXiv:1909.02487, appendix C, whose Fisher matrix F is 4 S).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LogPsi, OptimizerState, Params, UpdateInfo
from vmcjob.vmc.energy import centred, clip

Vector = Float[Array, " param"]
PerWalker = Float[Array, " walker"]


class Scores(NamedTuple):
    """The scores of the walkers of one device as a pair of linear maps, never as a matrix.

    One linearization of the batch serves every product, so that a product costs about two linear
    passes and the memory of one forward pass.
    """

    apply: Callable[[Vector], PerWalker]  # v -> O v, not centred
    apply_transpose: Callable[[PerWalker], Vector]  # w -> Oᵀ w, this device's walkers only


def linearize_scores(log_psi: LogPsi, params: Params, r: Float[Array, "walker elec 3"]) -> Scores:
    """Products with ∂ log|ψ|/∂θ for a batch of walkers."""
    flat, unravel = ravel_pytree(params)

    def batch_log_psi(theta: Vector) -> PerWalker:
        return jax.vmap(log_psi, (None, 0))(unravel(theta), r)

    _, jvp = jax.linearize(batch_log_psi, flat)
    transpose = jax.linear_transpose(jvp, flat)
    return Scores(jvp, lambda weights: transpose(weights)[0])


def multiply_overlap(scores: Scores, v: Vector, n_walkers: int) -> Vector:
    """S v, averaged over the `n_walkers` walkers of each of all devices; inside pmap."""
    return devices.mean(scores.apply_transpose(centred(scores.apply(v))) / n_walkers)


class SrState(NamedTuple):
    """The last natural gradient, from which the next solve starts."""

    direction: Vector


@dataclass(frozen=True)
class StochasticReconfiguration:
    """SR with lazily composed jvp and vjp products (an `Optimizer`).

    Args:
        log_psi: one walker's log|ψ|.
        learning_rate: η₀ in hartree⁻¹, an imaginary time step.
        decay_steps: η = η₀ / (1 + step / decay_steps).
        damping: λ, added to the diagonal of S.
        cg_iterations: upper limit of conjugate-gradient iterations.
        cg_tolerance: residual, relative to the gradient, at which the iterations end.
        norm_constraint: upper limit of δθᵀ S δθ, the squared change of ψ in its own norm.
        clip_width: local energies are clipped at so many mean absolute deviations.
    """

    log_psi: LogPsi
    learning_rate: float
    decay_steps: float
    damping: float
    cg_iterations: int
    cg_tolerance: float
    norm_constraint: float
    clip_width: float

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
        scores = linearize_scores(self.log_psi, params, r)
        clipped, n_clipped = clip(e_loc, self.clip_width)
        n_walkers = r.shape[0]
        gradient = devices.mean(scores.apply_transpose(centred(clipped)) / n_walkers)
        direction, _ = cg(
            lambda v: multiply_overlap(scores, v, n_walkers) + self.damping * v,
            gradient,
            x0=state.direction,
            maxiter=self.cg_iterations,
            tol=self.cg_tolerance,
        )
        eta = self.learning_rate / (1.0 + step / self.decay_steps)
        change = eta**2 * jnp.vdot(direction, multiply_overlap(scores, direction, n_walkers))
        eta *= jnp.minimum(1.0, jnp.sqrt(self.norm_constraint / change))
        flat, unravel = ravel_pytree(params)
        delta = -eta * direction
        info = UpdateInfo(2.0 * jnp.linalg.norm(gradient), jnp.linalg.norm(delta), eta, n_clipped)
        return unravel(flat + delta), SrState(direction), info
