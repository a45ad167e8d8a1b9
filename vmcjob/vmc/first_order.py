"""Gradient descent with optax: Adam, and LAMB, which scales every array's step to its own size.

    ∂E/∂θ = 2 ⟨(E_loc − ⟨E_loc⟩) ∂ log|ψ|/∂θ⟩

Neither looks at the metric of ψ (Adam: arXiv:1412.6980; LAMB: arXiv:1904.00962).
"""

from dataclasses import dataclass

import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LogPsi, OptimizerState, Params, UpdateInfo
from vmcjob.vmc.energy import Clipping, centred
from vmcjob.vmc.schedule import LearningRate
from vmcjob.vmc.scores import PerWalker, lazy_scores


def adam(b1: float, b2: float) -> optax.GradientTransformation:
    """The gradient's running mean over the root of that of its square, which forget as b1, b2."""
    return optax.scale_by_adam(b1, b2)


def lamb(b1: float, b2: float) -> optax.GradientTransformation:
    """Adam's direction, in every array of parameters as long as the array itself."""
    return optax.chain(optax.scale_by_adam(b1, b2, eps=1e-6), optax.scale_by_trust_ratio())


@dataclass(frozen=True)
class FirstOrder:
    """Descent along what `transformation` makes of the gradient (an `Optimizer`).

    Args:
        log_psi: one walker's log|ψ|.
        learning_rate: η, the length of a step in θ where the gradient's size has been divided out.
        transformation: `adam` or `lamb`; its state is a pytree of arrays.
        clipping: of local energies.
    """

    log_psi: LogPsi
    learning_rate: LearningRate
    transformation: optax.GradientTransformation
    clipping: Clipping

    def init(self, params: Params) -> OptimizerState:
        """The transformation's own first state."""
        return self.transformation.init(params)

    def update(
        self,
        params: Params,
        state: OptimizerState,
        r: Float[Array, "walker elec 3"],
        e_loc: PerWalker,
        step: Array,
    ) -> tuple[Params, OptimizerState, UpdateInfo]:
        """One step; inside pmap. See `Optimizer.update`."""
        clipped, n_clipped = self.clipping.apply(e_loc)
        scores = lazy_scores(self.log_psi, params, r)
        gradient = 2.0 * devices.mean(scores.apply_transpose(centred(clipped)) / r.shape[0])
        flat, unravel = ravel_pytree(params)
        direction, memory = self.transformation.update(unravel(gradient), state, params)
        eta = self.learning_rate(step)
        delta = -eta * ravel_pytree(direction)[0]
        info = UpdateInfo(jnp.linalg.norm(gradient), jnp.linalg.norm(delta), eta, n_clipped)
        return unravel(flat + delta), memory, info
