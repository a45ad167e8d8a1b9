"""Random keys by name: folded from (seed, stream, step), and from a device or a walker.

No key is carried from step to step. So a resumed run draws the same numbers as an uninterrupted
one.
"""

from enum import IntEnum
from typing import Final

import jax
from jax import Array
from jax.typing import ArrayLike

from vmcjob.vmc import devices

RETRY_STRIDE: Final = 7
"""Number of streams when retries got their own streams; fixed, because it decides numbers."""


class Stream(IntEnum):
    """The purpose of random numbers: step 7 of training and step 7 of evaluation share none."""

    WARMUP = 0
    TRAIN = 1
    EQUILIBRATE = 2
    EVALUATE = 3
    INITIAL = 4
    PRETRAIN = 5
    CURVATURE = 6  # numbers that an optimizer draws in a training step
    COMPARE = 1 << 20  # above the numbers of all retries of other streams

    def number(self, retry: int) -> int:
        """The stream's number, a different one for each retry."""
        return self + RETRY_STRIDE * retry


class Share(IntEnum):
    """The user of a walker's numbers in a step. Values are above all device numbers.

    Device keys are folded from the same key.
    """

    HAMILTONIAN = 1 << 20
    OBSERVABLES = 2 << 20


def stream_key(seed: ArrayLike, number: ArrayLike) -> Array:
    """The key of a stream; keys of its steps are folded from it."""
    return jax.random.fold_in(jax.random.key(seed), number)


def step_key(stream: Array, step: ArrayLike) -> Array:
    """The key of one step, the same on all devices."""
    return jax.random.fold_in(stream, step)


def device_key(stream: Array, step: ArrayLike) -> Array:
    """The key of one step on this device; inside pmap."""
    return jax.random.fold_in(step_key(stream, step), devices.index())


def walker_key(key: Array, share: Share, walker: ArrayLike) -> Array:
    """A walker's key in a step, independent of the walker's device.

    Args:
        key: of the step.
        share: the user of the numbers.
        walker: its number among the walkers of all devices.
    """
    return jax.random.fold_in(jax.random.fold_in(key, share), walker)
