"""Trainings that end when their energy is level: when to look, and the finding.

The last part of a training, with a falling learning rate and averaged parameters, is in proportion
to the whole. When the energy is level, the whole length is set so that the last part begins now. Up
to this point, a training planned with this length has done the same steps.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vmcjob.run.calculation import AVERAGED
from vmcjob.run.optimizer import learning_rate
from vmcjob.run.target import lengths
from vmcjob.spec import JobSpec
from vmcjob.verdict.findings import is_level, last_fall
from vmcjob.vmc.schedule import Plateau


class Level(NamedTuple):
    """The finding about a training after some steps; energies in hartree."""

    step: int
    fall: float  # over the last tenth, from a straight line
    error: float  # error of `fall`
    is_reached: bool
    steps: int  # length of the whole training that follows

    def to_json(self) -> dict[str, Any]:
        """The finding as attributes of the store."""
        known = bool(np.isfinite(self.fall))
        return self._asdict() | ({} if known else {"fall": None, "error": None})

    def __str__(self) -> str:
        """The consequence for the training, in words."""
        about = f"it fell by {1e3 * self.fall:.2g} ± {1e3 * self.error:.1g} mHa over the last tenth"
        how = "is level" if self.is_reached else "is not surely level"
        return f"training {how} after {self.step} steps ({about}), and has {self.steps} in all"


def with_training(spec: JobSpec, n_steps: int) -> JobSpec:
    """The spec with a training of this length."""
    return replace(spec, train=replace(spec.train, steps=n_steps))


def looks_of(spec: JobSpec) -> frozenset[int]:
    """The steps of a training after which its end may begin; none if its length is fixed."""
    if spec.train.until != "level":
        return frozenset()
    latest = math.floor(_part_before_end(spec) * spec.train.steps)
    return frozenset(lengths(latest + 1)[1:])


def judge(spec: JobSpec, energies: np.ndarray) -> Level:
    """Whether the training is level, by all rows so far, and was level at the last look."""
    n = len(energies)
    falls = [last_fall(energies[:end]) for end in (*lengths(n)[-1:], n)]
    is_reached = all(is_level(*found) for found in falls)
    wanted = math.ceil(n / _part_before_end(spec))
    steps = min(wanted, spec.train.steps) if is_reached else spec.train.steps
    return Level(n, *falls[-1], is_reached, steps)


def _part_before_end(spec: JobSpec) -> float:
    """Fraction of the steps before the learning rate falls and averaging begins."""
    averaged = 0.0 if spec.evaluate.parameters == "last" else AVERAGED
    rate = learning_rate(spec)
    return min(1.0 - averaged, rate.plateau if isinstance(rate, Plateau) else 1.0)
