"""Compile the programs that a run needs next, while it still computes an earlier phase."""

import logging
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import NamedTuple

import jax

from vmcjob.run import executables
from vmcjob.run.executables import Traced, trace
from vmcjob.run.programs import COMPILER
from vmcjob.run.stop import StopRequest
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.loop import Step, StepOfPhase
from vmcjob.vmc.phases import Calculation, Phase

FIRST = (Phase.TRAIN, Phase.WARMUP)
"""What lies between a run's beginning and its first training step, but for pretraining, the longest
first. What comes later is compiled when it is due: it would take processors from training."""

SWITCH_S = 5e-4
"""A thread that traces a program holds the interpreter for so long at most: a step of the phase at
work takes several turns to dispatch, and Python's own 5 ms would be longer than many a step."""
USUAL_S = sys.getswitchinterval()
LOOK_S = 0.1
"""Between looks for a stop, where there is nothing to do but wait."""

log = logging.getLogger("vmcjob")


class _Ahead(NamedTuple):
    """A step whose program is first traced, then compiled."""

    step: Step
    traced: Future[Traced]
    made: Future[Step]


class Steps:
    """The steps of a calculation's phases; some programs are already being compiled."""

    def __init__(
        self, calculation: Calculation, phases: Iterable[Phase], shapes: Callable[[], LoopState]
    ) -> None:
        """Begin with these phases, one after the other.

        Args:
            calculation: the calculation of the steps.
            phases: the phases to prepare; none if programs cannot be compiled before they are
                called.
            shapes: shapes of the states of these phases, from `Calculation.shapes`.
        """
        self._calculation = calculation
        self._ahead: dict[Phase, _Ahead] = {}
        steps = {phase: calculation.step_of(phase) for phase in phases}
        if not steps:
            return
        sys.setswitchinterval(SWITCH_S)
        # One thread: the current phase computes on the other processors.
        pool = ThreadPoolExecutor(1, COMPILER)
        for phase, step in steps.items():
            if isinstance(step, StepOfPhase):
                traced = pool.submit(trace, calculation.identity, step, shapes)
                self._ahead[phase] = _Ahead(step, traced, pool.submit(_made, traced))
        pool.submit(sys.setswitchinterval, USUAL_S)
        pool.shutdown(wait=False)

    @classmethod
    def before_all(
        cls, calculation: Calculation, planned: Iterable[Phase], stop: StopRequest
    ) -> "Steps":
        """Begin before there is a state or a pretraining target.

        Returns when the first program, the longest, is traced and being compiled: threads share one
        interpreter, and other tracing would delay it.
        """
        phases = [phase for phase in _first() if phase in planned]
        steps = cls(calculation, phases, cache(calculation.shapes))
        first = [ahead.traced for ahead in steps._ahead.values()][:1]
        if first:
            calculation.begun()  # in the meantime: most of it is the compiler's
        while not stop.number and wait(first, LOOK_S).not_done:
            pass
        return steps

    @classmethod
    def during(cls, calculation: Calculation, current: Phase, state: LoopState) -> "Steps":
        """Begin with the phases after `current`, whose first state is given."""
        phases = list(Phase)
        later = [phase for phase in _first() if phases.index(phase) > phases.index(current)]
        if later and current is Phase.PRETRAIN:
            state = calculation.after_pretraining(state)
        shapes = jax.tree.map(shape_of, state)
        return cls(calculation, later, lambda: shapes)

    def step_of(self, calculation: Calculation, phase: Phase, state: LoopState) -> Step:
        """The step of a phase, when its program is compiled; compiled now, if nobody has begun.

        Args:
            calculation: a calculation that replaced the first has its own steps.
            phase: the phase.
            state: like the states to come; not consumed.
        """
        ahead = self._ahead.pop(phase, None)
        if ahead is None or not self._is_of(calculation):
            return _ready(calculation, calculation.step_of(phase), state)
        if ahead.traced.cancel():  # its turn has not come: it is made ready here and now
            ahead.made.cancel()
            return _ready(calculation, ahead.step, state)
        if error := ahead.made.exception():  # the step itself will tell
            log.debug("%s was not compiled ahead: %s", phase, error)
            return ahead.step
        return ahead.made.result()

    def _is_of(self, calculation: Calculation) -> bool:
        """Whether the steps belong to a calculation, with or without pretraining."""
        named = calculation.identity and calculation.identity == self._calculation.identity
        return calculation is self._calculation or bool(named)


def _first() -> tuple[Phase, ...]:
    return FIRST if executables.can_be_ready() else ()


def _ready(calculation: Calculation, step: Step, state: LoopState) -> Step:
    """The step with its program compiled, if this is possible before it is called."""
    if not isinstance(step, StepOfPhase) or not executables.can_be_ready():
        return step
    return trace(calculation.identity, step, lambda: state).ready()


def _made(traced: Future[Traced]) -> Step:
    return traced.result().ready()


def shape_of(x: jax.Array) -> jax.ShapeDtypeStruct:
    """Shape, dtype and sharding of an array that may be consumed meanwhile."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
