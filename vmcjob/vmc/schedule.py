"""How numbers change with the step."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array


@dataclass(frozen=True)
class Decay:
    """initial / (1 + step / steps), or `minimum` where that is more."""

    initial: float
    steps: float
    minimum: float = 0.0

    def __call__(self, step: Array) -> Array:
        return jnp.maximum(self.initial / (1.0 + step / self.steps), self.minimum)
