"""When a training has come to rest: where this is looked at, what is found, and what then is left.

The last part of a training, in which the learning rate falls and parameters are averaged, is in
proportion to the whole. So the whole is made as long as it has to be for that part to begin where
the energy is level: up to there, a training that is planned to be so long has done the same.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vmcjob.run.calculation import AVERAGED
from vmcjob.run.optimizer import learning_rate
from vmcjob.run.target import lengths
from vmcjob.spec import JobSpec
from vmcjob.verdict import is_level, last_fall
from vmcjob.vmc.schedule import Plateau


class Level(NamedTuple):
    """What was found of a training after so many steps; energies in hartree."""

    step: int
    fall: float  # over the last tenth, by a straight line
    error: float  # of that
    is_reached: bool
    steps: int  # of the whole training, by what was found

    def to_json(self) -> dict[str, Any]:
        """For the store's attributes."""
        known = bool(np.isfinite(self.fall))
        return self._asdict() | ({} if known else {"fall": None, "error": None})

    def __str__(self) -> str:
        """What follows for the training, for people."""
        about = f"it fell by {1e3 * self.fall:.2g} ± {1e3 * self.error:.1g} mHa over the last tenth"
        how = "is level" if self.is_reached else "is not surely level"
        return f"training {how} after {self.step} steps ({about}), and has {self.steps} in all"


def with_training(spec: JobSpec, n_steps: int) -> JobSpec:
    """The spec with a training of so many steps."""
    return replace(spec, train=replace(spec.train, steps=n_steps))


def looks_of(spec: JobSpec) -> frozenset[int]:
    """The steps of a training after which its end may begin; none where its length is given."""
    if spec.train.until != "level":
        return frozenset()
    latest = math.floor(_part_before_end(spec) * spec.train.steps)
    return frozenset(lengths(latest + 1)[1:])


def judge(spec: JobSpec, energies: np.ndarray) -> Level:
    """Whether it has come to rest, by all rows so far: it had at the length before, too."""
    n = len(energies)
    falls = [last_fall(energies[:end]) for end in (*lengths(n)[-1:], n)]
    is_reached = all(is_level(*found) for found in falls)
    wanted = math.ceil(n / _part_before_end(spec))
    steps = min(wanted, spec.train.steps) if is_reached else spec.train.steps
    return Level(n, *falls[-1], is_reached, steps)


def _part_before_end(spec: JobSpec) -> float:
    """Of all steps of a training, those before its learning rate falls, and before averages."""
    averaged = 0.0 if spec.evaluate.parameters == "last" else AVERAGED
    rate = learning_rate(spec)
    return min(1.0 - averaged, rate.plateau if isinstance(rate, Plateau) else 1.0)
