"""A run: its first state, and the steps of its phases as a generator.

    pretrain → warmup → train → compare → equilibrate → evaluate

This module knows no files, clocks or signals. The caller of `course` may commit and stop between
two steps, and begin another course with an earlier state.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vmcjob.vmc import devices
from vmcjob.vmc.ansatz import WaveFunction
from vmcjob.vmc.contracts import ChainState, LoopState, Nuclei, Params, StepInfo
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.pretrain import Pretraining
from vmcjob.vmc.steps import Step
from vmcjob.vmc.streams import Stream, stream_key
from vmcjob.vmc.system import Home, System, deviates, energy_bound, initial_positions


class Phase(StrEnum):
    """The phases of a run, in their order; steps are counted within a phase."""

    PRETRAIN = "pretrain"  # fit the orbitals to those of Hartree–Fock
    WARMUP = "warmup"  # sample |ψ|², and tune the width of moves
    TRAIN = "train"  # improve the parameters
    COMPARE = "compare"  # choose the parameters to evaluate: the last ones or their average
    EQUILIBRATE = "equilibrate"  # sample |ψ|² of these; parameters and width are frozen from here
    EVALUATE = "evaluate"  # measure energies and observables


@dataclass(frozen=True)
class Calculation:
    """The VMC to do, and how it begins."""

    vmc: Vmc
    system: System
    ansatz: WaveFunction
    n_walkers: int
    width: float  # bohr, initial
    pretraining: Pretraining | None = None
    arrangements: Sequence[Sequence[Home]] = ()  # walkers' starts, by turns, if Hartree-Fock knows
    identity: str = ""  # calculations that share one have the same steps

    @property
    def energy_bound(self) -> float:
        """An energy that no state of the system is below, hartree."""
        return energy_bound(self.system)

    def initial_state(self) -> LoopState:
        """Parameters, optimizer and walkers before the first phase, on all devices.

        Depends on the seed alone, not on the number of devices.
        """
        params, xi = self.begun()
        r = initial_positions(self.system, xi, arrangements=self.arrangements)
        memory = (self.pretraining or self.vmc.optimizer).init(params)
        width = devices.replicate(jnp.asarray(self.width, r.dtype))
        age, tally = np.zeros(len(r), np.int32), np.zeros((len(r), 3), r.dtype)
        chain = ChainState(devices.shard(r), width, devices.shard(age), devices.shard(tally))
        average = params if self.vmc.average_from is not None else None
        response = self.vmc.observing.no_response(params)
        kept = devices.replicate((average, response))
        return LoopState(devices.replicate(params), devices.replicate(memory), chain, *kept)

    def shapes(self) -> LoopState:
        """The states that follow pretraining, as `jax.ShapeDtypeStruct`; there need be none yet."""
        params, xi = self._begin.eval_shape(self._initial_key(), self.vmc.nuclei)
        memory = jax.eval_shape(self.vmc.optimizer.init, params)
        n_own, shape = self.n_walkers // devices.count(), jax.ShapeDtypeStruct
        r: Any = shape((n_own, *xi.shape[1:]), xi.dtype)
        width: Any = shape((), xi.dtype)
        age: Any = shape((n_own,), np.int32)
        tally: Any = shape((n_own, 3), xi.dtype)
        average = params if self.vmc.average_from is not None else None
        chain = ChainState(r, width, age, tally)
        response = jax.eval_shape(self.vmc.observing.no_response, params)
        return devices.on_each(LoopState(params, memory, chain, average, response))

    def begun(self) -> tuple[Params, Array]:
        """The first parameters, and normal deviates for the walkers' places."""
        return self._begin(self._initial_key(), self.vmc.nuclei)

    @property
    def _begin(self) -> Any:
        ansatz: Any = self.ansatz  # pyright does not know that flax makes it hashable
        return _beginning(self.system, ansatz, self.n_walkers)

    def _initial_key(self) -> Array:
        return stream_key(self.vmc.seed, Stream.INITIAL)

    def after_pretraining(self, state: LoopState) -> LoopState:
        """The state with the same parameters and walkers, and a new optimizer of VMC."""
        memory = self.vmc.optimizer.init(devices.unreplicate(state.params))
        return state._replace(optimizer=devices.replicate(memory))

    def step_of(self, phase: Phase) -> Step:
        """What is done again and again in a phase. Raises ValueError without what it takes."""
        if phase is Phase.PRETRAIN:
            if self.pretraining is None:
                raise ValueError("there is no pretraining without a Hartree-Fock start")
            return self.pretraining.step()
        steps = {
            Phase.WARMUP: self.vmc.warmup_step,
            Phase.TRAIN: self.vmc.train_step,
            Phase.COMPARE: self.vmc.compare_step,
            Phase.EQUILIBRATE: self.vmc.equilibrate_step,
            Phase.EVALUATE: self.vmc.evaluate_step,
        }
        return steps[phase]()


@lru_cache(maxsize=1)
def _beginning(system: System, ansatz: WaveFunction, n_walkers: int) -> Any:
    """The program ``(key, nuclei) -> parameters, normal deviates for the walkers' places``.

    One object for equal calculations, so that the program is traced once.
    """

    def begin(key: Array, nuclei: Nuclei) -> tuple[Params, Array]:
        key_params, key_walkers = jax.random.split(key)
        xi = deviates(system, key_walkers, n_walkers)
        return ansatz.init(key_params, xi[0], nuclei), xi

    return devices.run_once(begin)


def candidates(state: LoopState) -> dict[str, Params]:
    """Which parameters may be evaluated: the "last", and if one is kept their "average".

    On the host, for the devices' are consumed by the next step.
    """
    found = {"last": state.params}
    if state.average is not None:
        found["average"] = state.average
    return {
        name: jax.tree.map(np.array, devices.unreplicate(params)) for name, params in found.items()
    }


def with_parameters(state: LoopState, params: Params) -> LoopState:
    """A state with other parameters, from the host, and the same walkers."""
    return state._replace(params=devices.replicate(params))


@dataclass(frozen=True)
class Position:
    """The position of a run: its phase, the steps done in this phase, the state after them."""

    phase: Phase
    step: int
    state: LoopState  # consumed by the next step


@dataclass(frozen=True)
class Event(Position):
    """One step of a run, and the position after it; steps of a phase are counted from 1.

    A device is waited for only when `info` is read.
    """

    on_devices: Any  # the report of the step

    @property
    def info(self) -> Any:
        """The report of the step, on the host: `StepInfo` where energies are measured."""
        return devices.unreplicate(self.on_devices)


Choice = Callable[[Mapping[str, Sequence[StepInfo]]], str]
"""From the steps of COMPARE with each of the `candidates` to the one that is evaluated."""
StepOf = Callable[[Calculation, Phase, LoopState], Step]
"""The step of a phase, for states like the given one, which is not consumed."""


PHASES: Final = frozenset(Phase)


def run(
    calculation: Calculation,
    steps: Mapping[str, int],
    start: Position | None = None,
    choose: Choice | None = None,
) -> Iterator[Event]:
    """Every step of a run, phase by phase; see `course` for the arguments and errors."""
    return (one for one in course(calculation, steps, start, choose) if isinstance(one, Event))


def course(
    calculation: Calculation,
    steps: Mapping[str, int] | Mapping[Phase, int],
    start: Position | None = None,
    choose: Choice | None = None,
    step_of: StepOf = lambda calculation, phase, _: calculation.step_of(phase),
) -> Iterator[Position]:
    """The course of a run: the first position of each phase, and an `Event` after each step.

    The caller may commit, stop and begin another course between any two of them; not within
    COMPARE, whose states hold the parameters of a candidate.

    Args:
        calculation: the calculation to run.
        steps: number of steps of each `Phase` or its name, 0 by default. The steps of COMPARE are
            divided among the candidates; there are none if no average is kept.
        start: the position to begin with, whose state is consumed; by default the beginning.
            A comparison always begins anew.
        choose: the choice between the last parameters and their average, if one is kept; without
            it the last ones are evaluated. A job has `vmcjob.run.comparison.choose`.
        step_of: makes the step of a phase.

    Raises ValueError for a name that is no phase, and for COMPARE without `choose`.
    """
    if unknown := steps.keys() - PHASES:
        raise ValueError(f"{sorted(unknown)}: no phases; there are {', '.join(Phase)}")
    if choose is None and steps.get(Phase.COMPARE, 0):
        raise ValueError("compare needs `choose`, like vmcjob.run.comparison.choose")
    first = start or Position(Phase.PRETRAIN, 0, calculation.initial_state())
    position = Position(first.phase, first.step, first.state)  # never an Event: no step was taken
    phases = list(Phase)
    for phase in phases[phases.index(position.phase) :]:
        if phase is not position.phase:
            position = Position(phase, 0, position.state)
        yield position
        n_steps = steps.get(phase, 0)
        if phase is Phase.COMPARE:
            make_step = partial(step_of, calculation, phase, position.state)
            state = yield from _compare(make_step, position.state, n_steps, choose)
        elif position.step < n_steps:
            step = step_of(calculation, phase, position.state)
            state = yield from _repeat(step, position, n_steps)
        else:
            state = position.state
        if phase is Phase.PRETRAIN and calculation.pretraining is not None:
            state = calculation.after_pretraining(state)
        position = replace(position, state=state)


def _repeat(step: Step, start: Position, n_steps: int) -> Generator[Event, None, LoopState]:
    """The remaining steps of a phase; returns the state after them."""
    state = start.state
    for done in iterate(step, state, start.step, n_steps):
        state = done.state
        yield Event(start.phase, done.step + 1, state, done.info)
    return state


def _compare(
    make_step: Callable[[], Step], state: LoopState, n_steps: int, choose: Choice | None
) -> Generator[Event, None, LoopState]:
    """Measure one candidate after the other; returns the state with the chosen parameters."""
    if choose is None or state.average is None:
        return state
    found = candidates(state)
    measured: dict[str, list[Any]] = {name: [] for name in found}
    if n_each := n_steps // len(found):
        step = make_step()
        for number, (name, params) in enumerate(found.items()):
            first = Position(Phase.COMPARE, number * n_each, with_parameters(state, params))
            for event in _repeat(step, first, first.step + n_each):
                state = event.state
                measured[name].append(event.on_devices)
                yield event
    # Each by itself: a tree of JAX would sort the candidates by name.
    on_host = {name: devices.unreplicate(infos) for name, infos in measured.items()}
    return with_parameters(state, found[choose(on_host)])
