"""Schedules: learning rate, damping and memory as functions of the step."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array


@runtime_checkable
class LearningRate(Protocol):
    """The learning rate η of a step, and the limit of the step's length."""

    def __call__(self, step: Array) -> Array:
        """η of a step, counted from 0."""
        ...

    def limit(self, step: Array, constraint: float) -> Array | float:
        """The limit of a squared change: `constraint` at first, later possibly less."""
        ...


@dataclass(frozen=True)
class Decay:
    """max(initial / (1 + step / steps), minimum); the limit of a step does not change."""

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
    """A damping that falls with the step, or with the local energies' variance if faster.

    It does not fall below a fraction of that variance: the more local energies scatter, the more an
    update depends on a few walkers.
    """

    decay: Decay
    per_variance: float = 0.0  # hartree⁻²

    def __call__(self, step: Array, variance: Array) -> Array:
        """λ of a step, from the variance of its batch in hartree²."""
        floor = jnp.minimum(self.per_variance * variance, self.decay.initial)
        return jnp.clip(variance, self.decay.minimum, jnp.maximum(self.decay(step), floor))


@dataclass(frozen=True)
class Plateau:
    """`initial` for a part of all steps, then falling as a cosine to a fraction of `initial`.

    The limit falls in proportion. With SPRING the limit is active at every step, so the parameters
    would otherwise never settle.
    """

    initial: float
    steps: int  # total number of steps
    plateau: float  # fraction of all steps, below 1
    final: float  # fraction of `initial`

    def __call__(self, step: Array) -> Array:
        return self.initial * self._part(step)

    def limit(self, step: Array, constraint: float) -> Array:
        """The constraint times (η / initial)²."""
        return constraint * self._part(step) ** 2

    def _part(self, step: Array) -> Array:
        fallen = (step / max(1, self.steps) - self.plateau) / (1.0 - self.plateau)
        half = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(fallen, 0.0, 1.0)))
        return self.final + (1.0 - self.final) * half


FIRST_MEMORY = 10.0
"""First length of a growing memory, in steps."""


@dataclass(frozen=True)
class Memory:
    """μ for a memory of 1 / (1 − μ) steps, which grows from ten steps to its full length.

    `growth` is the growth per step; 0 means the full length at once. A memory as long as the
    training so far would keep the directions of the first, worst walkers.
    """

    momentum: float
    growth: float = 0.0

    def __call__(self, step: Array) -> Array | float:
        if self.growth == 0.0:
            return self.momentum
        return jnp.minimum(self.momentum, 1.0 - 1.0 / (FIRST_MEMORY + self.growth * step))
