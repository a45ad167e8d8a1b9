"""Programs that a run needs next are compiled while it is still busy with an earlier phase."""

import logging
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from vmcjob.run.programs import COMPILER
from vmcjob.vmc import ranks
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.loop import Step, StepOfPhase
from vmcjob.vmc.phases import Calculation, Phase

FIRST = (Phase.TRAIN, Phase.WARMUP)
"""What lies between a run's beginning and its first training step, the longest first. What comes
later is compiled when it is due: it would take processors from training."""

SWITCH_S = 5e-4
"""A thread that traces a program holds the interpreter for so long at most: a step of the phase at
work takes several turns to dispatch, and Python's own 5 ms would be longer than many a step."""

log = logging.getLogger("vmcjob")


class Steps:
    """The steps of a calculation's phases, some of which are being compiled already.

    Only where one process computes on processors: ranks have to compile in step with each other,
    and on a GPU a compiler that tries kernels out would do so while others are running.
    """

    def __init__(self, calculation: Calculation, current: Phase, state: LoopState) -> None:
        """Begin to compile for the phases after the `current` one, whose first state is given."""
        self._calculation = calculation
        self._ahead: dict[Phase, tuple[Step, Future[None]]] = {}
        phases = list(Phase)
        later = [phase for phase in FIRST if phases.index(phase) > phases.index(current)]
        if later and ranks.count() == 1 and jax.default_backend() == "cpu":
            self._compile(later, current, state)

    def step_of(self, calculation: Calculation, phase: Phase) -> Step:
        """The step of a phase, once its program is there, or at once if nobody is at it yet.

        Args:
            calculation: whose; one that has taken the place of the first has steps of its own.
            phase: which.
        """
        step, compiled = self._ahead.pop(phase, (None, None))
        if step is None or compiled is None or calculation is not self._calculation:
            return calculation.step_of(phase)
        is_given_up = compiled.cancel()  # its turn has not come: it is compiled here and now
        if not is_given_up and (error := compiled.exception()):  # the step itself will tell
            log.debug("%s was not compiled ahead: %s", phase, error)
        return step

    def _compile(self, later: Iterable[Phase], current: Phase, state: LoopState) -> None:
        if current is Phase.PRETRAIN:
            state = self._calculation.after_pretraining(state)
        shapes = jax.tree.map(_shape, state)
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        # One thread: the current phase computes on the other processors.
        pool = ThreadPoolExecutor(1, COMPILER)
        for phase in later:
            step = self._calculation.step_of(phase)
            if isinstance(step, StepOfPhase):
                self._ahead[phase] = step, pool.submit(step.compile, shapes)
        pool.submit(sys.setswitchinterval, usual)
        pool.shutdown(wait=False)


def _shape(x: jax.Array) -> jax.ShapeDtypeStruct:
    """What a program knows of an array, which may be consumed meanwhile."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
