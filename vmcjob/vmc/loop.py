"""The VMC loop: warm-up, training and evaluation as steps over LoopState, run on all devices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
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
    Trust,
)
from vmcjob.vmc.energy import local_energies, moments
from vmcjob.vmc.sampler import sweep, tune_width
from vmcjob.vmc.trust import shortened

Step = Callable[[LoopState, Array], tuple[LoopState, Any]]
"""``(state, step index) -> (state, info)`` on all devices; state and info have a device axis."""

# Streams of random numbers, one per phase: step 7 of training and of evaluation share nothing.
# CURVATURE is for what an optimizer draws in a step of training.
WARMUP, TRAIN, EQUILIBRATE, EVALUATE, INITIAL, PRETRAIN, CURVATURE = range(7)
COMPARE = 1 << 20  # beyond all retries of the others


def stream(kind: int, retry: int) -> int:
    """A phase's stream of random numbers; another one for every retry."""
    return kind + 7 * retry


class Moment(NamedTuple):
    """What random numbers depend on: an argument of programs, so that all seeds share them."""

    seed: Array
    step: Array  # of its phase, from 0


def on_all_devices(step: Callable[[LoopState, Moment], tuple[LoopState, Any]], seed: int) -> Step:
    """The step of one device, on all of them; it consumes the state."""
    mapped = devices.pmap(step, donate_argnums=(0,))
    return lambda state, index: mapped(state, Moment(jnp.uint32(seed), index))


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
    min_ess: float = 0.0  # see `trust.shortened`; 0: updates are made as they are
    average_from: int | None = None  # first step whose parameters enter the average, if one is kept
    chunk_divisor: int = 1  # takes fewer walkers at a time

    def warmup_step(self) -> Step:
        """Sample and tune the width; parameters stay."""

        def step(state: LoopState, now: Moment) -> tuple[LoopState, Array]:
            chain, acceptance = self._sweep(state, WARMUP, now)
            chain = tune_width(chain, acceptance, self.target_acceptance)
            return state._replace(chain=chain), acceptance

        return on_all_devices(step, self.seed)

    def train_step(self) -> Step:
        """Sample, measure, update the parameters, tune the width."""

        def step(state: LoopState, now: Moment) -> tuple[LoopState, StepInfo]:
            chain, acceptance = self._sweep(state, TRAIN, now)
            e_loc = self._measure(state.params, chain)
            params, memory, update = self.optimizer.update(
                state.params, state.optimizer, chain.r, e_loc, now.step
            )
            params, trust = self._trusted(state.params, params, chain.r)
            tuned = tune_width(chain, acceptance, self.target_acceptance)
            average = self._averaged(state.average, params, now.step)
            new = LoopState(params, memory, tuned, average)
            info = _report(new, e_loc, acceptance, chain.width)
            update = update._replace(update_norm=trust.part * update.update_norm)
            return new, info._replace(
                update=update, median=jnp.median(devices.concatenate(e_loc)), trust=trust
            )

        return on_all_devices(step, self.seed)

    def equilibrate_step(self) -> Step:
        """Sample under frozen parameters and width, so that evaluation starts from |ψ|²."""

        def step(state: LoopState, now: Moment) -> tuple[LoopState, Array]:
            chain, acceptance = self._sweep(state, EQUILIBRATE, now)
            return state._replace(chain=chain), acceptance

        return on_all_devices(step, self.seed)

    def compare_step(self) -> Step:
        """A step like one of evaluation, with random numbers of its own."""
        return self._measuring_step(COMPARE)

    def evaluate_step(self) -> Step:
        """Sample and measure under frozen parameters and width."""
        return self._measuring_step(EVALUATE)

    def _measuring_step(self, kind: int) -> Step:
        def step(state: LoopState, now: Moment) -> tuple[LoopState, StepInfo]:
            chain, acceptance = self._sweep(state, kind, now)
            e_loc = self._measure(state.params, chain)
            new = state._replace(chain=chain)
            return new, _report(new, e_loc, acceptance, chain.width)

        return on_all_devices(step, self.seed)

    def _trusted(self, old: Params, new: Params, r: Array) -> tuple[Params, Trust]:
        """The parameters after an update that the walkers bear."""
        if self.min_ess == 0.0:
            return new, Trust(jnp.full((), jnp.nan, r.dtype), jnp.ones((), r.dtype))
        return shortened(self.log_psi, old, new, r, self.min_ess)

    def _averaged(self, average: Params | None, params: Params, step: Array) -> Params | None:
        """The mean of the parameters since `average_from`; before, the newest."""
        if self.average_from is None:
            return None
        n_before = jnp.maximum(step - self.average_from, 0)

        def mean(before: Array, x: Array) -> Array:
            return jnp.where(n_before == 0, x, before + (x - before) / (n_before + 1))

        return jax.tree.map(mean, average, params)

    def _measure(self, params: Params, chain: ChainState) -> Array:
        return local_energies(self.local_energy, params, chain.r, self.chunk_divisor)

    def _sweep(self, state: LoopState, kind: int, now: Moment) -> tuple[ChainState, Array]:
        key = devices.key(now.seed, stream(kind, self.retry), now.step)
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
