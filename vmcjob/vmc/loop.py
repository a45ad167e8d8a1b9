"""The VMC loop: warm-up, training and evaluation as steps over LoopState, run on all devices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import (
    ChainState,
    LocalEnergies,
    LogPsi,
    LoopState,
    Nuclei,
    Optimizer,
    Params,
    SignedWaveFunction,
    StepInfo,
)
from vmcjob.vmc.energy import count, make_local_energies, moments
from vmcjob.vmc.hamiltonian import Hamiltonian
from vmcjob.vmc.observing import NOTHING_MORE, Measuring, Observing, Responding, Walker, when_due
from vmcjob.vmc.response import improve
from vmcjob.vmc.sampler import Moves, Sampled, sample, tune_width
from vmcjob.vmc.steps import Given, Program, Step, on_all_devices, step_of
from vmcjob.vmc.streams import Stream, device_key, step_key, stream_key
from vmcjob.vmc.traits import TraitsOf, make_squared_spins
from vmcjob.vmc.update import UpdateRule
from vmcjob.vmc.wavefunction import log_modulus

MakeOptimizer = Callable[[LogPsi, LocalEnergies], Optimizer]
"""The optimizer of a wave function and a Hamiltonian whose nuclei are known."""


@dataclass(frozen=True)
class Vmc:
    """One VMC calculation: what is sampled, how it is measured, and how it is improved.

    Each method makes one pmapped step. A step is a pure function of state, seed and step index, so
    10 + 10 steps equal 20, bit for bit where the device's arithmetic repeats itself.
    """

    psi: SignedWaveFunction
    hamiltonian: Hamiltonian
    nuclei: Nuclei
    make_optimizer: MakeOptimizer
    rule: UpdateRule  # how far the optimizer's steps go
    seed: int
    moves: Moves  # of each step
    target_acceptance: float
    retry: int = 0  # draws other random numbers
    average_from: int | None = None  # first step whose parameters enter the average, if one is kept
    chunk_divisor: int = 1  # takes fewer walkers at a time
    n_up: int | None = None  # electrons of spin up, the first of every walker; for observables
    spin_penalty: float = 0.0  # hartree for each unit of S², in training
    observing: Observing = NOTHING_MORE  # what evaluation measures beside the energy

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer where the nuclei are; not for use in steps, whose nuclei are given."""
        key = step_key(stream_key(self.seed, Stream.INITIAL), 0)
        return self.make_optimizer(
            log_modulus(self.psi, self.nuclei), self._local_energies(self.nuclei, key)
        )

    def warmup_step(self) -> Step:
        """Sample and tune the width; parameters stay."""
        return self._step_of(self._sampling, Stream.WARMUP)

    def train_step(self) -> Step:
        """Sample, measure, update the parameters, tune the width."""

        def step(state: LoopState, now: Given) -> tuple[LoopState, StepInfo]:
            chain, log_abs, acceptance = self._sample(state.params, state.chain, now)
            log_psi = log_modulus(self.psi, now.setting)
            local_energies = self._local_energies(now.setting, _key(now))
            e_loc = local_energies(state.params, chain.r)
            sampled, lowered = state._replace(chain=chain), e_loc
            if self.spin_penalty:
                penalties = self._penalties(now.setting)
                lowered = e_loc + penalties(state.params, chain.r)
                local_energies = sum_of(local_energies, penalties)
            optimizer = self.make_optimizer(log_psi, local_energies)
            update = self.rule.update(optimizer, log_psi, sampled, log_abs, lowered, now.step)
            tuned = tune_width(chain, acceptance, self.target_acceptance)
            average = self._averaged(state.average, update.params, now.step)
            new = LoopState(update.params, update.optimizer, tuned, average, state.response)
            median = jnp.median(devices.concatenate(e_loc))
            info = _report(new, e_loc, acceptance, chain.width)
            more = {"update": update.info, "trust": update.trust, "told": update.told}
            return new, info._replace(median=median, **more)

        return self._step_of(on_all_devices(step), Stream.TRAIN)

    def equilibrate_step(self) -> Step:
        """Sample under frozen parameters and width, so that evaluation starts from |ψ|².

        Where an observable takes the response of the parameters, each step improves the response.
        """
        one = self.observing.responding
        program = self._sampling if one is None else self._following(one)
        return self._step_of(program, Stream.EQUILIBRATE, tunes=False)

    def compare_step(self) -> Step:
        """A step like one of evaluation, with random numbers of its own."""
        return self._step_of(self._measuring, Stream.COMPARE)

    def evaluate_step(self) -> Step:
        """Sample and measure under frozen parameters and width, observables where they are due."""
        return self._step_of(self._measuring, Stream.EVALUATE)

    @cached_property
    def _sampling(self) -> Program:
        def step(state: LoopState, now: Given) -> tuple[LoopState, Array]:
            chain, _, acceptance = self._sample(state.params, state.chain, now)
            tuned = tune_width(chain, acceptance, self.target_acceptance)
            width = jnp.where(now.tunes, tuned.width, chain.width)
            return state._replace(chain=chain._replace(width=width)), acceptance

        return on_all_devices(step)

    def _following(self, one: Responding) -> Program:
        """Sampling that also improves the response to the changes of an observable."""

        def step(state: LoopState, now: Given) -> tuple[LoopState, Array]:
            chain, _, acceptance = self._sample(state.params, state.chain, now)
            response = state.response
            if response is not None:
                log_psi = log_modulus(self.psi, now.setting)

                def changes(r: Array) -> Array:
                    return one.changes(Walker(self.psi, state.params, r, now.setting))

                given = log_psi, state.params, chain.r, changes, response
                response = improve(*given, self.chunk_divisor)
            return state._replace(chain=chain, response=response), acceptance

        return on_all_devices(step)

    @cached_property
    def _measuring(self) -> Program:
        observing, columns = self.observing, self.observing.columns()

        def step(state: LoopState, now: Given) -> tuple[LoopState, StepInfo]:
            chain, _, acceptance = self._sample(state.params, state.chain, now)
            nuclei, key = now.setting, _key(now)
            energies, observed = self._local_energies(nuclei, key), None
            if columns:
                given = self.hamiltonian, self.psi, nuclei, self.n_up, observing, key
                measure = Measuring(*given, self.chunk_divisor, state.response)
                either = when_due(observing.is_due(now.step), measure, energies, columns)
                e_loc, own = either(state.params, chain.r)
                observed = devices.mean(own)
            else:
                e_loc = energies(state.params, chain.r)
            if chain.tally is not None:
                chain = chain._replace(tally=count(chain.tally, e_loc, now.step == 0))
            new = state._replace(chain=chain)
            info = _report(new, e_loc, acceptance, chain.width)
            traits_of = TraitsOf(self.psi, nuclei, self.n_up, self.moves.number, self.chunk_divisor)
            traits = traits_of(state.params, chain.r, now.step)
            return new, info._replace(observed=observed, traits=traits)

        return on_all_devices(step)

    def _step_of(self, program: Program, stream: Stream, *, tunes: bool = True) -> Step:
        number = stream.number(self.retry)
        return step_of(program, self.seed, number, self.nuclei, tunes=tunes)

    def _penalties(self, nuclei: Nuclei) -> LocalEnergies:
        """S² of walkers times the penalty; ValueError if nobody has said which spins are up."""
        if self.n_up is None:
            raise ValueError("a penalty for spin needs the number of electrons of spin up, n_up")
        squared_spins = make_squared_spins(self.psi, nuclei, self.n_up, self.chunk_divisor)
        return lambda params, r: self.spin_penalty * squared_spins(params, r)

    def _averaged(self, average: Params | None, params: Params, step: Array) -> Params | None:
        """The mean of the parameters since `average_from`; before, the newest."""
        if self.average_from is None:
            return None
        n_before = jnp.maximum(step - self.average_from, 0)

        def mean(before: Array, x: Array) -> Array:
            return jnp.where(n_before == 0, x, before + (x - before) / (n_before + 1))

        return jax.tree.map(mean, average, params)

    def _local_energies(self, nuclei: Nuclei, key: Array) -> LocalEnergies:
        return lambda params, r: self._energies(params, r, nuclei, key)

    @cached_property
    def _energies(self) -> Callable[[Params, Array, Nuclei, Array], Array]:
        """Local energies of walkers; traced once for all programs."""

        def energies(params: Params, r: Array, nuclei: Nuclei, key: Array) -> Array:
            given = self.hamiltonian, self.psi, nuclei, key
            return make_local_energies(*given, self.chunk_divisor)(params, r)

        return jax.jit(energies, inline=True)

    @cached_property
    def _sample(self) -> Callable[[Params, ChainState, Given], Sampled]:
        """The walkers after a step's moves; the acceptance is that of all devices.

        Traced once for all programs.
        """

        def sampled(params: Params, chain: ChainState, now: Given) -> Sampled:
            key = device_key(now.stream, now.step)
            log_psi = log_modulus(self.psi, now.setting)
            moved = sample(log_psi, params, key, chain, self.moves, now.setting)
            return moved._replace(acceptance=devices.mean(moved.acceptance))

        return jax.jit(sampled, inline=True)


def sum_of(one: LocalEnergies, other: LocalEnergies) -> LocalEnergies:
    """Local energies to which other ones are added."""
    return lambda params, r: one(params, r) + other(params, r)


def _key(now: Given) -> Array:
    """The random key of a step, from which walkers derive their own."""
    return step_key(now.stream, now.step)


def _report(state: LoopState, e_loc: Array, acceptance: Array, width: Array) -> StepInfo:
    energy, variance = moments(e_loc)
    is_finite = devices.all_finite((energy, variance, state))
    info = StepInfo(energy, variance, acceptance, width, None, is_finite)
    age = state.chain.age
    return info if age is None else info._replace(max_age=devices.largest(jnp.max(age)))


class Done(NamedTuple):
    """One step, done or on its way; reading a number waits for the device."""

    step: int
    state: LoopState  # consumed by the next step
    info: Any  # what the phase's step reports, for `devices.unreplicate`


def iterate(step: Step, state: LoopState, first: int, last: int) -> Iterator[Done]:
    """Steps `first` to `last` − 1 of a phase, one after the other."""
    for index in range(first, last):
        state, info = step(state, np.int32(index))
        yield Done(index, state, info)
