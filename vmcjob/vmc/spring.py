"""Stochastic reconfiguration in sample space: MinSR, and SPRING, which has a memory.

With the centred scores O of N walkers as rows, divided by √N, and ε = (E_loc − ⟨E_loc⟩) / √N,

    d = μ d₀ + Oᵀ (O Oᵀ + λ)⁻¹ (ε − μ O d₀),    δθ = −η d

where d₀ is d of the previous step (arXiv:2401.10190, eq. 30). Without memory, μ = 0, this is SR: Oᵀ
(O Oᵀ + λ)⁻¹ ε = (Oᵀ O + λ)⁻¹ Oᵀ ε, from a system with one equation per walker (arXiv:2302.01941).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from vmcjob.columns import Column
from vmcjob.vmc import devices
from vmcjob.vmc.centred_scores import centred_scores
from vmcjob.vmc.contracts import Batch, LogPsi, Made, Metric, OptimizerState, Params, Proposal
from vmcjob.vmc.gram import solve_gram
from vmcjob.vmc.schedule import FallingDamping, Memory
from vmcjob.vmc.scores import Vector, no_direction


class SpringState(NamedTuple):
    """The last direction d₀, before the norm constraint."""

    direction: Vector


@dataclass(frozen=True)
class Spring:
    """SPRING; without momentum, MinSR (an `Optimizer`).

    Args:
        log_psi: one walker's log|ψ|.
        damping: λ, the same as in SR, or its schedule. While the memory is short, later batches do
            not
            correct the overfitting of this one, so λ has to be larger, unless local energies agree.
        memory: μ, the fraction of the last direction that is kept, below 1.
        chunk_divisor: see `map_walkers`.
    """

    columns: ClassVar[Mapping[str, Column]] = {
        "damping": Column("1", "damping"),
        "condition": Column("1", "lower bound of the damped Gram matrix's condition number"),
        "gram_shift": Column("1", "what had to be added to the damping to factorise that matrix"),
        "cg_iterations": Column("1", "iterations that its float32 factor left to be done"),
    }

    log_psi: LogPsi
    damping: float | FallingDamping
    memory: Memory
    chunk_divisor: int = 1

    @property
    def metric(self) -> Metric:
        """The overlap metric as in SR; with momentum, the Euclidean metric."""
        return "euclidean" if self.memory.momentum else "overlap"

    def init(self, params: Params) -> SpringState:
        """The state without a direction."""
        return SpringState(no_direction(params))

    def propose(self, params: Params, state: OptimizerState, batch: Batch) -> Proposal:
        """The direction d; inside pmap. See `Optimizer.propose`."""
        r = batch.r
        root = jnp.sqrt(devices.total(r.shape[0])).astype(r.dtype)
        scores = centred_scores(self.log_psi, params, r, 1.0 / root, self.chunk_divisor)
        epsilon = devices.concatenate(batch.deviations / root)
        kept = scores.split(self.memory(batch.step) * state.direction)
        damping = self.damping
        if isinstance(damping, FallingDamping):
            damping = damping(batch.step, jnp.sum(epsilon**2))
        solved = solve_gram(scores, epsilon - scores.apply(kept), damping)
        parts = jax.tree.map(jnp.add, kept, solved.direction)
        direction = scores.join(parts)
        image = direction if self.metric == "euclidean" else scores.apply(parts)
        told = {
            "damping": jnp.asarray(damping, r.dtype),
            "condition": solved.condition,
            "gram_shift": solved.shift,
            "cg_iterations": solved.iterations,
        }
        gradient = 2.0 * scores.join(scores.apply_transpose(epsilon))
        return Proposal(direction, jnp.vdot(image, image), gradient, told=told)

    def remember(self, proposal: Proposal, made: Made) -> SpringState:
        """The direction, independent of the length of the step."""
        del made
        return SpringState(proposal.direction)
