"""The VMC loop: warm-up, training and evaluation as steps over LoopState, run on all devices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import (
    ChainState,
    LocalEnergy,
    LogPsi,
    LoopState,
    Optimizer,
    Params,
    StepInfo,
)
from vmcjob.vmc.energy import local_energies, moments
from vmcjob.vmc.sampler import sweep, tune_width

Step = Callable[[LoopState, Array], tuple[LoopState, Any]]
"""``(state, step index) -> (state, info)`` on all devices; state and info have a device axis."""

# Streams of random numbers, one per phase: step 7 of training and of evaluation share nothing.
# CURVATURE is for what an optimizer draws in a step of training.
WARMUP, TRAIN, EQUILIBRATE, EVALUATE, INITIAL, PRETRAIN, CURVATURE = range(7)


def stream(kind: int, retry: int) -> int:
    """A phase's stream of random numbers; another one for every retry."""
    return kind + 7 * retry


@dataclass(frozen=True)
class Vmc:
    """One VMC calculation: what is sampled, how it is measured, and how it is improved.

    Each method makes one pmapped step. A step is a pure function of state, seed and step index, so
    10 + 10 steps equal 20, bit for bit where the device's arithmetic repeats itself.
    """

    log_psi: LogPsi
    local_energy: LocalEnergy
    optimizer: Optimizer
    seed: int
    moves: int  # Metropolis moves per step
    target_acceptance: float
    retry: int = 0  # draws other random numbers
    chunk_divisor: int = 1  # takes fewer walkers at a time

    def warmup_step(self) -> Step:
        """Sample and tune the width; parameters stay."""

        def step(state: LoopState, index: Array) -> tuple[LoopState, Array]:
            chain, acceptance = self._sweep(state, WARMUP, index)
            chain = tune_width(chain, acceptance, self.target_acceptance)
            return state._replace(chain=chain), acceptance

        return devices.pmap(step, donate_argnums=(0,))

    def train_step(self) -> Step:
        """Sample, measure, update the parameters, tune the width."""

        def step(state: LoopState, index: Array) -> tuple[LoopState, StepInfo]:
            chain, acceptance = self._sweep(state, TRAIN, index)
            e_loc = self._measure(state.params, chain)
            params, memory, update = self.optimizer.update(
                state.params, state.optimizer, chain.r, e_loc, index
            )
            tuned = tune_width(chain, acceptance, self.target_acceptance)
            new = LoopState(params, memory, tuned)
            info = _report(new, e_loc, acceptance, chain.width)
            return new, info._replace(update=update)

        return devices.pmap(step, donate_argnums=(0,))

    def equilibrate_step(self) -> Step:
        """Sample under frozen parameters and width, so that evaluation starts from |ψ|²."""

        def step(state: LoopState, index: Array) -> tuple[LoopState, Array]:
            chain, acceptance = self._sweep(state, EQUILIBRATE, index)
            return state._replace(chain=chain), acceptance

        return devices.pmap(step, donate_argnums=(0,))

    def evaluate_step(self) -> Step:
        """Sample and measure under frozen parameters and width."""

        def step(state: LoopState, index: Array) -> tuple[LoopState, StepInfo]:
            chain, acceptance = self._sweep(state, EVALUATE, index)
            e_loc = self._measure(state.params, chain)
            new = state._replace(chain=chain)
            return new, _report(new, e_loc, acceptance, chain.width)

        return devices.pmap(step, donate_argnums=(0,))

    def _measure(self, params: Params, chain: ChainState) -> Array:
        return local_energies(self.local_energy, params, chain.r, self.chunk_divisor)

    def _sweep(self, state: LoopState, kind: int, index: Array) -> tuple[ChainState, Array]:
        key = devices.key(self.seed, stream(kind, self.retry), index)
        chain, accepted = sweep(self.log_psi, state.params, key, state.chain, self.moves)
        return chain, devices.mean(accepted)


def _report(state: LoopState, e_loc: Array, acceptance: Array, width: Array) -> StepInfo:
    energy, variance = moments(e_loc)
    is_finite = devices.all_finite((energy, variance, state))
    return StepInfo(energy, variance, acceptance, width, None, is_finite)


class Done(NamedTuple):
    """One step, done or on its way: the device is not waited for, whoever reads a number waits."""

    step: int
    state: LoopState  # consumed by the next step
    info: Any  # what the phase's step reports


def iterate(step: Step, state: LoopState, first: int, last: int) -> Iterator[Done]:
    """Steps `first` to `last` − 1 of a phase, one after the other."""
    for index in range(first, last):
        state, info = step(state, jnp.asarray(index))
        yield Done(index, state, info)
