"""Stochastic reconfiguration in sample space: MinSR, and SPRING, which remembers.

With the centred scores O of N walkers as rows, divided by √N, and ε = (E_loc − ⟨E_loc⟩) / √N,

    d = μ d₀ + Oᵀ (O Oᵀ + λ)⁻¹ (ε − μ O d₀),    δθ = −η d

where d₀ is the d of the step before (arXiv:2401.10190, eq. 30). Without memory, μ = 0, this is SR:
Oᵀ (O Oᵀ + λ)⁻¹ ε = (Oᵀ O + λ)⁻¹ Oᵀ ε, from a system of as many equations as walkers
(arXiv:2302.01941).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LogPsi, OptimizerState, Params, UpdateInfo
from vmcjob.vmc.energy import Clipping, centred
from vmcjob.vmc.schedule import Decay, LearningRate, Memory
from vmcjob.vmc.scores import PerWalker, Vector, centred_columns, score_matrix
from vmcjob.vmc.sr import limited

HIGHEST = jax.lax.Precision.HIGHEST


class SpringState(NamedTuple):
    """The last direction d₀, not shortened by the norm constraint."""

    direction: Vector


@dataclass(frozen=True)
class Spring:
    """SPRING; with no momentum, MinSR (an `Optimizer`).

    Args:
        log_psi: one walker's log|ψ|.
        learning_rate: η in hartree⁻¹, an imaginary time step.
        damping: λ, the same as in SR, or how it falls: as long as the memory is short, no later
            batch makes up for what this one has overdone, unless its local energies agree anyway.
        memory: μ, the part of the last direction that is kept, below 1.
        norm_constraint: upper limit of ‖δθ‖² with a memory: what is remembered is mostly out of
            this batch's sight. Without, of δθᵀ S δθ as in SR.
        clipping: of local energies.
        chunk_divisor: of `score_matrix`.
    """

    log_psi: LogPsi
    learning_rate: LearningRate
    damping: float | Decay
    memory: Memory
    norm_constraint: float
    clipping: Clipping
    chunk_divisor: int = 1

    def init(self, params: Params) -> SpringState:
        """No direction yet."""
        return SpringState(jnp.zeros_like(ravel_pytree(params)[0]))

    def update(
        self,
        params: Params,
        state: OptimizerState,
        r: Float[Array, "walker elec 3"],
        e_loc: PerWalker,
        step: Array,
    ) -> tuple[Params, SpringState, UpdateInfo]:
        """One step; inside pmap. See `Optimizer.update`."""
        clipped, n_clipped = self.clipping.apply(e_loc)
        root = jnp.sqrt(devices.total(r.shape[0])).astype(r.dtype)
        scores = score_matrix(self.log_psi, params, r, self.chunk_divisor)
        scores = centred_columns(scores) / root
        epsilon = centred(clipped) / root
        kept = self.memory(step) * state.direction
        unexplained = epsilon - jnp.matmul(scores, kept, precision=HIGHEST)
        damping = self._damping(step, epsilon)
        direction = kept + _from_rows(scores, solve_gram(scores, unexplained, damping))
        if self.memory.momentum:
            square = jnp.vdot(direction, direction)
        else:
            square = devices.total(jnp.sum(jnp.matmul(scores, direction, precision=HIGHEST) ** 2))
        limit = self.learning_rate.limit(step, self.norm_constraint)
        eta = limited(self.learning_rate(step), square, limit)
        flat, unravel = ravel_pytree(params)
        delta = -eta * direction
        gradient = 2.0 * jnp.linalg.norm(_from_rows(scores, epsilon))
        info = UpdateInfo(gradient, jnp.linalg.norm(delta), eta, n_clipped)
        return unravel(flat + delta), SpringState(direction), info

    def _damping(self, step: Array, epsilon: PerWalker) -> float | Array:
        """λ of a step; one that falls is not above the batch's variance Σ ε² either."""
        if not isinstance(self.damping, Decay):
            return self.damping
        variance = devices.total(jnp.sum(epsilon**2))
        return jnp.clip(variance, self.damping.minimum, self.damping(step))


def _from_rows(scores: Float[Array, "walker param"], weights: PerWalker) -> Vector:
    """Oᵀ w over the walkers of all devices."""
    return devices.total(jnp.matmul(weights, scores, precision=HIGHEST))


def solve_gram(
    scores: Float[Array, "walker param"], rhs: PerWalker, damping: float | Array
) -> PerWalker:
    """(O Oᵀ + λ)⁻¹ b over the walkers of all devices, each device with its own rows; inside pmap.

    In float64 whatever the type of the scores: O Oᵀ is singular where walkers outnumber parameters,
    along the mean anyway, and float32 would leave it with eigenvalues below −λ.

    The devices exchange rows for columns, so that none of them ever holds the scores of all walkers
    and each does its share of the product.
    """
    n_devices, own = devices.total(1), scores.shape[0]
    columns = devices.rows_to_columns(scores)
    with jax.enable_x64(True):
        wide = columns.astype(jnp.float64)
        gram = devices.total(jnp.matmul(wide, wide.T, precision=HIGHEST))
        gram += damping * jnp.eye(n_devices * own, dtype=jnp.float64)
        every = devices.concatenate(rhs.astype(jnp.float64))
        solution = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram), every)
        mine = jax.lax.dynamic_slice_in_dim(solution, devices.index() * own, own)
        return mine.astype(rhs.dtype)
