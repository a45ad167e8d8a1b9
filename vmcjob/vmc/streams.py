"""Random numbers by name: keys are folded from (seed, stream, step) and from a device or a walker.

No key is carried from step to step, so that a resumed run draws what the uninterrupted one would
have drawn.
"""

from enum import IntEnum
from typing import Final

import jax
from jax import Array
from jax.typing import ArrayLike

from vmcjob.vmc import devices

RETRY_STRIDE: Final = 7
"""Streams there were when retries were first told apart; it has decided the numbers of runs."""


class Stream(IntEnum):
    """What random numbers are for: step 7 of training and of evaluation share nothing."""

    WARMUP = 0
    TRAIN = 1
    EQUILIBRATE = 2
    EVALUATE = 3
    INITIAL = 4
    PRETRAIN = 5
    CURVATURE = 6  # what an optimizer draws in a step of training
    COMPARE = 1 << 20  # beyond all retries of the others

    def number(self, retry: int) -> int:
        """The stream's number; another one for every retry."""
        return self + RETRY_STRIDE * retry


class Share(IntEnum):
    """Who draws for a walker in a step; beyond all numbers of devices, whose keys lie beside."""

    HAMILTONIAN = 1 << 20
    OBSERVABLES = 2 << 20


def stream_key(seed: ArrayLike, number: ArrayLike) -> Array:
    """The key of a stream, from which those of its steps are folded."""
    return jax.random.fold_in(jax.random.key(seed), number)


def step_key(stream: Array, step: ArrayLike) -> Array:
    """The key of one step, the same on all devices."""
    return jax.random.fold_in(stream, step)


def device_key(stream: Array, step: ArrayLike) -> Array:
    """The key of one step on this device; inside pmap."""
    return jax.random.fold_in(step_key(stream, step), devices.index())


def walker_key(key: Array, share: Share, walker: ArrayLike) -> Array:
    """A walker's own key of a step, whichever device it is on.

    Args:
        key: of the step.
        share: who draws.
        walker: its number among the walkers of all devices.
    """
    return jax.random.fold_in(jax.random.fold_in(key, share), walker)
