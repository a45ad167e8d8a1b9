"""Compile the training step in the background, while a run is still at an earlier phase."""

import logging
from collections.abc import Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import jax
from jax.stages import Compiled

from vmcjob.run.programs import COMPILER
from vmcjob.vmc import ranks
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.phases import Calculation, Phase
from vmcjob.vmc.steps import Step, StepOfPhase

log = logging.getLogger("vmcjob")


class _Training(NamedTuple):
    """The training step of a calculation, and its program as soon as it is compiled."""

    identity: str  # of the calculation
    step: StepOfPhase
    program: Future[Compiled]


class Steps:
    """The steps of a calculation's phases; the training step may already be compiling."""

    def __init__(self, training: _Training | None = None) -> None:
        self._training = training

    @classmethod
    def before_all(cls, calculation: Calculation, planned: Set[Phase]) -> "Steps":
        """Begin before there is a state or a pretraining target.

        Args:
            calculation: the calculation of the steps, with or without pretraining.
            planned: the phases that have steps.
        """
        if Phase.TRAIN not in planned or not _can_compile_ahead():
            return cls()
        return cls(_begin(calculation, calculation.shapes()))

    @classmethod
    def during(cls, calculation: Calculation, current: Phase, state: LoopState) -> "Steps":
        """Begin in the phase `current`, whose first state is given and not consumed."""
        if current not in (Phase.PRETRAIN, Phase.WARMUP) or not _can_compile_ahead():
            return cls()
        if current is Phase.PRETRAIN:
            state = calculation.after_pretraining(state)
        return cls(_begin(calculation, jax.tree.map(shape_of, state)))

    def step_of(self, calculation: Calculation, phase: Phase, state: LoopState) -> Step:
        """The step of a phase, with its program compiled.

        Args:
            calculation: a calculation with another identity than the first has its own steps.
            phase: the phase.
            state: like the states to come; not consumed.
        """
        ahead = self._training
        if phase is not Phase.TRAIN or ahead is None or ahead.identity != calculation.identity:
            return _compiled(calculation.step_of(phase), state)
        self._training = None
        if error := ahead.program.exception():  # the step itself will raise it
            log.debug("the training step was not compiled ahead: %s", error)
            return ahead.step
        return replace(ahead.step, program=ahead.program.result())


def _can_compile_ahead() -> bool:
    """Whether one process works on the run: several have to compile in step."""
    return ranks.count() == 1


def _begin(calculation: Calculation, shapes: LoopState) -> _Training | None:
    """Trace the training step, and start a thread that compiles it."""
    step = calculation.step_of(Phase.TRAIN)
    if not isinstance(step, StepOfPhase):
        return None
    lowered = step.lower(shapes)
    pool = ThreadPoolExecutor(1, COMPILER)
    program = pool.submit(lowered.compile, step.options)
    pool.shutdown(wait=False)
    return _Training(calculation.identity, step, program)


def _compiled(step: Step, state: LoopState) -> Step:
    """The step with its program compiled, if programs can be compiled before they are called."""
    if not isinstance(step, StepOfPhase) or not _can_compile_ahead():
        return step
    return replace(step, program=step.lower(state).compile(step.options))


def shape_of(x: jax.Array) -> jax.ShapeDtypeStruct:
    """Shape, dtype and sharding of an array that may be consumed meanwhile."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
