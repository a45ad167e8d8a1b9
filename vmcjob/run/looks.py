"""Early ends of training and evaluation: when to look, and the findings."""

from collections.abc import Mapping

import numpy as np

from vmcjob.run import level, target
from vmcjob.run.level import Level
from vmcjob.run.target import Finding
from vmcjob.spec import JobSpec
from vmcjob.vmc.phases import Phase


class Looks:
    """The looks at one run; a phase of fixed length is never looked at."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._training = level.looks_of(spec)
        self._evaluation = target.looks_of(spec.evaluate)

    def steps(self, phase: Phase, planned: Mapping[Phase, int]) -> frozenset[int]:
        """The steps of a phase after which to look, given the planned lengths.

        A training that was found level is not looked at again.
        """
        if phase is Phase.EVALUATE:
            return self._evaluation
        is_open = planned[Phase.TRAIN] == self._spec.train.steps
        return self._training if phase is Phase.TRAIN and is_open else frozenset()

    def judge(self, phase: Phase, rows: Mapping[str, np.ndarray]) -> Finding | Level:
        """The finding about a phase, from all its rows so far."""
        if phase is Phase.TRAIN:
            return level.judge(self._spec, rows["energy"])
        target_error = self._spec.evaluate.target_error or 0.0  # no error is that small
        return target.judge(rows["energy"], rows["variance"], target_error)
