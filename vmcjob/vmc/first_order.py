"""Gradient descent with optax: Adam, and LAMB, which scales each array's step to the array's size.

    ∂E/∂θ = 2 ⟨(E_loc − ⟨E_loc⟩) ∂ log|ψ|/∂θ⟩

Neither uses the metric of ψ (Adam: arXiv:1412.6980; LAMB: arXiv:1904.00962).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from vmcjob.columns import Column
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, LogPsi, Made, Metric, OptimizerState, Params, Proposal
from vmcjob.vmc.scores import lazy_scores


def adam(b1: float, b2: float) -> optax.GradientTransformation:
    """Running mean of the gradient over the root of the running mean of its square (b1, b2)."""
    return optax.scale_by_adam(b1, b2)


def lamb(b1: float, b2: float) -> optax.GradientTransformation:
    """Adam's direction, scaled for each array of parameters to the length of the array."""
    return optax.chain(optax.scale_by_adam(b1, b2, eps=1e-6), optax.scale_by_trust_ratio())


@dataclass(frozen=True)
class FirstOrder:
    """Descent along the gradient as changed by `transformation` (an `Optimizer`).

    Args:
        log_psi: one walker's log|ψ|.
        transformation: `adam` or `lamb`; its state is a pytree of arrays. If it divides out the
            gradient's size, the learning rate is the length of a step in θ.
    """

    columns: ClassVar[Mapping[str, Column]] = {}

    log_psi: LogPsi
    transformation: optax.GradientTransformation

    @property
    def metric(self) -> Metric:
        """The metric of the parameters; the learning rate is about the length of a step."""
        return "euclidean"

    def init(self, params: Params) -> OptimizerState:
        """The first state of the transformation."""
        return self.transformation.init(params)

    def propose(self, params: Params, state: OptimizerState, batch: Batch) -> Proposal:
        """The transformed gradient; inside pmap. See `Optimizer.propose`."""
        scores = lazy_scores(self.log_psi, params, batch.r)
        gradient = 2.0 * devices.mean(scores.apply_transpose(batch.deviations) / batch.r.shape[0])
        _, unravel = ravel_pytree(params)
        transformed, memory = self.transformation.update(unravel(gradient), state, params)
        direction, _ = ravel_pytree(transformed)
        return Proposal(direction, jnp.vdot(direction, direction), gradient, memory=memory)

    def remember(self, proposal: Proposal, made: Made) -> OptimizerState:
        """The next state of the transformation."""
        del made
        return proposal.memory
