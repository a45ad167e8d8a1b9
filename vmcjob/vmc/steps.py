"""The step of a phase: a program for all devices, and its arguments beside the state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.stages import Lowered

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.streams import stream_key

Index = Array | np.int32
"""Of a step within its phase, from 0; NumPy's is sooner on a device."""

Step = Callable[[LoopState, Index], tuple[LoopState, Any]]
"""``(state, step index) -> (state, info)`` on all devices.

The state has a device axis; what is reported can be had by `devices.unreplicate`.
"""

FIRST = np.int32(0)


class Given(NamedTuple):
    """What steps depend on beside the state: arguments of programs, which all runs so share."""

    stream: Array  # the key of its random numbers
    step: Array  # of its phase, from 0
    setting: Any  # a pytree of arrays; nuclei, and whatever else a phase takes as given
    tunes: Array  # whether the width of moves follows the acceptance, if the phase can do without


Program = Callable[[LoopState, Given], tuple[LoopState, Any]]
"""A step on all devices, compiled once for all phases that differ in what is given alone."""


def on_all_devices(step: Program) -> Program:
    """The step of one device, on all of them; it consumes the state, and packs what it reports."""

    def packed(state: LoopState, now: Given) -> tuple[LoopState, devices.Packed]:
        state, info = step(state, now)
        return state, devices.pack(info)

    return devices.pmap(packed, donate_argnums=(0,))


@dataclass(frozen=True)
class StepOfPhase:
    """The step of a phase: its program, with all that is given but the step's index."""

    program: Program
    stream: Array
    setting: Any
    tunes: Array
    options: dict[str, str | bool] | None = None  # of XLA, where the program is compiled by itself

    def __call__(self, state: LoopState, index: Index) -> Any:
        """Take one step; see `Step`."""
        return self.program(state, self.given(index))

    def lower(self, state: LoopState) -> Lowered:
        """The program, traced for states with these shapes, and ready to be compiled.

        Args:
            state: of arrays, or of `jax.ShapeDtypeStruct`; it is not consumed.
        """
        program: Any = self.program
        return program.lower(state, self.given())

    def given(self, index: Index = FIRST) -> Given:
        """The arguments of the program in one of the steps."""
        step: Any = index  # an array inside
        return Given(self.stream, step, self.setting, self.tunes)


def step_of(
    program: Program, seed: int, stream: int, setting: Any, *, tunes: bool = True
) -> StepOfPhase:
    """The step of a phase."""
    return StepOfPhase(program, stream_key(seed, stream), setting, jnp.asarray(tunes))
