"""How numbers change with the step."""

from dataclasses import dataclass

from jax import Array


@dataclass(frozen=True)
class Decay:
    """initial / (1 + step / steps)."""

    initial: float
    steps: float

    def __call__(self, step: Array) -> Array:
        return self.initial / (1.0 + step / self.steps)
