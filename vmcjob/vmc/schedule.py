"""How numbers change with the step."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array


@runtime_checkable
class LearningRate(Protocol):
    """The learning rate η of a step, and how far a step may go."""

    def __call__(self, step: Array) -> Array:
        """η of a step, counted from 0."""
        ...

    def limit(self, step: Array, constraint: float) -> Array | float:
        """The limit of a squared change: `constraint` at first, later maybe less."""
        ...


@dataclass(frozen=True)
class Decay:
    """initial / (1 + step / steps), or `minimum` where that is more; its limit stays."""

    initial: float
    steps: float
    minimum: float = 0.0

    def __call__(self, step: Array) -> Array:
        return jnp.maximum(self.initial / (1.0 + step / self.steps), self.minimum)

    def limit(self, step: Array, constraint: float) -> float:
        """The constraint itself."""
        del step
        return constraint


@dataclass(frozen=True)
class FallingDamping:
    """A damping that falls with the step, and with the local energies' variance if that is faster.

    It does not fall below a part of that variance: the more local energies scatter, the more of an
    update is what a few walkers happened to say.
    """

    decay: Decay
    per_variance: float = 0.0  # hartree⁻²

    def __call__(self, step: Array, variance: Array) -> Array:
        """λ of a step, by the variance of its batch, in hartree²."""
        floor = jnp.minimum(self.per_variance * variance, self.decay.initial)
        return jnp.clip(variance, self.decay.minimum, jnp.maximum(self.decay(step), floor))


@dataclass(frozen=True)
class Plateau:
    """initial for a part of all steps, then falling, as a cosine, to a part of itself.

    The limit falls in proportion: where it binds at every step, as with SPRING, the parameters
    would never settle otherwise.
    """

    initial: float
    steps: int  # in all
    plateau: float  # part of all steps, below 1
    final: float  # part of `initial`

    def __call__(self, step: Array) -> Array:
        return self.initial * self._part(step)

    def limit(self, step: Array, constraint: float) -> Array:
        """The constraint times the square of the part of `initial` that is left."""
        return constraint * self._part(step) ** 2

    def _part(self, step: Array) -> Array:
        fallen = (step / max(1, self.steps) - self.plateau) / (1.0 - self.plateau)
        half = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(fallen, 0.0, 1.0)))
        return self.final + (1.0 - self.final) * half


FIRST_MEMORY = 10.0
"""Steps of a memory that grows, at first."""


@dataclass(frozen=True)
class Memory:
    """μ of a memory of 1 / (1 − μ) steps, which grows from ten steps to its full length.

    `growth` is what a step adds; 0: full length at once. A memory as long as the training itself
    would keep what the first, worst walkers have said.
    """

    momentum: float
    growth: float = 0.0

    def __call__(self, step: Array) -> Array | float:
        if self.growth == 0.0:
            return self.momentum
        return jnp.minimum(self.momentum, 1.0 - 1.0 / (FIRST_MEMORY + self.growth * step))
