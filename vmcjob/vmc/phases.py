"""What a run is: its first state, and phase by phase what is done with it, as generators of steps.

    pretrain → warmup → train → compare → equilibrate → evaluate

Nothing here knows of files, clocks or signals: whoever goes through the steps may commit, stop, and
begin again with a state of before.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vmcjob.vmc import devices
from vmcjob.vmc.ansatz import WaveFunction
from vmcjob.vmc.contracts import ChainState, LoopState, Nuclei, Params, StepInfo
from vmcjob.vmc.loop import Step, Vmc, iterate
from vmcjob.vmc.pretrain import Pretraining
from vmcjob.vmc.streams import Stream, stream_key
from vmcjob.vmc.system import Home, System, deviates, energy_bound, initial_positions


class Phase(StrEnum):
    """What is done with a state, in this order; steps are counted within a phase."""

    PRETRAIN = "pretrain"  # orbitals are fitted to those of Hartree–Fock
    WARMUP = "warmup"  # walkers find |ψ|², and their width
    TRAIN = "train"  # parameters move
    COMPARE = "compare"  # of what is to be evaluated: the last parameters, or their average
    EQUILIBRATE = "equilibrate"  # walkers find the |ψ|² of these; all else is frozen from here on
    EVALUATE = "evaluate"  # energies and observables are measured


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
        return LoopState(
            devices.replicate(params), devices.replicate(memory), chain, devices.replicate(average)
        )

    def shapes(self) -> LoopState:
        """The states that follow pretraining, as `jax.ShapeDtypeStruct`; there need be none yet."""
        # Not by `begun`: its program would have to be compiled first.
        key = jax.eval_shape(lambda: stream_key(self.vmc.seed, Stream.INITIAL))
        params, xi = jax.eval_shape(self.begin, key, self.vmc.nuclei)
        memory = jax.eval_shape(self.vmc.optimizer.init, params)
        n_own, shape = self.n_walkers // devices.count(), jax.ShapeDtypeStruct
        r: Any = shape((n_own, *xi.shape[1:]), xi.dtype)
        width: Any = shape((), xi.dtype)
        age: Any = shape((n_own,), np.int32)
        tally: Any = shape((n_own, 3), xi.dtype)
        average = params if self.vmc.average_from is not None else None
        chain = ChainState(r, width, age, tally)
        return devices.on_each(LoopState(params, memory, chain, average))

    def begun(self) -> tuple[Params, Array]:
        """What `begin` computes, by one program."""
        return devices.run_once(self.begin)(
            stream_key(self.vmc.seed, Stream.INITIAL), self.vmc.nuclei
        )

    def begin(self, key: Array, nuclei: Nuclei) -> tuple[Params, Array]:
        """Parameters, and normal deviates for the walkers' places: one program for all of it."""
        key_params, key_walkers = jax.random.split(key)
        xi = deviates(self.system, key_walkers, self.n_walkers)
        return self.ansatz.init(key_params, xi[0], nuclei), xi

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
class Event:
    """One step of a run; a device is waited for only when `info` is read."""

    phase: Phase
    step: int  # of its phase, from 0
    state: LoopState  # consumed by the next step
    on_devices: Any  # what the phase's step reports

    @property
    def info(self) -> Any:
        """What the step reports, on the host: `StepInfo` where energies are measured."""
        return devices.unreplicate(self.on_devices)


Choice = Callable[[Mapping[str, Sequence[StepInfo]]], str]
"""From what was measured of each of the `candidates` to the one that is evaluated."""


PHASES: Final = frozenset(Phase)


def run(
    calculation: Calculation,
    steps: Mapping[str, int],
    state: LoopState | None = None,
    choose: Choice | None = None,
) -> Iterator[Event]:
    """Every step of a run, phase by phase.

    Args:
        calculation: what is run.
        steps: of each `Phase` or its name; 0 where nothing is said. COMPARE's are those of each
            candidate, and there is nothing to compare where no average is kept.
        state: to begin with, instead of the calculation's own; it is consumed.
        choose: which of the compared parameters are evaluated; a job has
            `vmcjob.run.comparison.choose`.

    Raises ValueError for a name that is no phase, and for COMPARE without `choose`.
    """
    if unknown := steps.keys() - PHASES:
        raise ValueError(f"{sorted(unknown)}: no phases; there are {', '.join(Phase)}")
    if choose is None and steps.get(Phase.COMPARE, 0):
        raise ValueError("compare needs `choose`, like vmcjob.run.comparison.choose")
    state = calculation.initial_state() if state is None else state
    for phase in Phase:
        if n_steps := steps.get(phase, 0):
            step = calculation.step_of(phase)
            if phase is Phase.COMPARE and choose is not None:
                state = yield from _compare(step, state, n_steps, choose)
            else:
                state = yield from _repeat(phase, step, state, 0, n_steps)
        if phase is Phase.PRETRAIN and calculation.pretraining is not None:
            state = calculation.after_pretraining(state)


def _repeat(
    phase: Phase, step: Step, state: LoopState, first: int, last: int
) -> Generator[Event, None, LoopState]:
    for done in iterate(step, state, first, last):
        state = done.state
        yield Event(phase, done.step, state, done.info)
    return state


def _compare(
    step: Step, state: LoopState, n_steps: int, choose: Choice
) -> Generator[Event, None, LoopState]:
    """Measure one candidate after the other; go on with the one that is chosen."""
    found, measured = candidates(state), {}
    if len(found) == 1:
        return state
    for number, (name, params) in enumerate(found.items()):
        first, infos = number * n_steps, []
        state = with_parameters(state, params)
        for event in _repeat(Phase.COMPARE, step, state, first, first + n_steps):
            state = event.state
            infos.append(event.info)
            yield event
        measured[name] = infos
    return with_parameters(state, found[choose(measured)])
