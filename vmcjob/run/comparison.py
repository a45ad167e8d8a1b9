"""The choice of the parameters to evaluate: those of the last step, or their average."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vmcjob.spec import JobSpec
from vmcjob.stats import estimate
from vmcjob.vmc import StepInfo

STEPS = 40
"""Of the measurement of one candidate, however long the evaluation is: a longer one begins with the
same walkers."""
EQUILIBRATION = 0.25
"""Part of a measurement in which walkers find their new places, and which does not count."""
CERTAIN = 3.0
"""Standard errors by which an energy must be lower to decide; else the lower variance does."""


class Measured(NamedTuple):
    """One candidate: energy and its error in hartree, median of the variance in hartree²."""

    energy: float
    error: float
    variance: float


def n_steps(spec: JobSpec) -> int:
    """Steps of the comparison of both candidates; zero if there is no choice."""
    if spec.evaluate.parameters != "best" or not (spec.train.steps and spec.evaluate.steps):
        return 0
    return 2 * STEPS


def measure(steps: Mapping[str, Sequence[StepInfo]]) -> dict[str, Measured]:
    """Energy, error and variance of each candidate, from the steps with its parameters."""
    return {name: _measured(infos) for name, infos in steps.items()}


def _measured(infos: Sequence[StepInfo]) -> Measured:
    kept = infos[round(EQUILIBRATION * len(infos)) :]
    energy = estimate(np.array([info.energy for info in kept], float))
    variance = np.median(np.array([info.variance for info in kept], float))
    return Measured(energy.mean, energy.error, float(variance))


def better(candidates: Mapping[str, Measured]) -> str:
    """The candidate with the lower energy, or where that is uncertain with the lower variance."""
    (first, a), (second, b) = candidates.items()
    if abs(a.energy - b.energy) > CERTAIN * np.hypot(a.error, b.error):
        return first if a.energy < b.energy else second
    return first if a.variance <= b.variance else second


def choose(steps: Mapping[str, Sequence[StepInfo]]) -> str:
    """The name of the candidate that a job evaluates, from the steps of each; for `vmc.run`.

    The first one, if there are no steps.
    """
    return better(measure(steps)) if all(steps.values()) else next(iter(steps))


def describe(candidates: Mapping[str, Measured]) -> str:
    """Both candidates in words."""
    return ", ".join(
        f"{name} {found.energy:.6f} ± {found.error:.6f} hartree, variance {found.variance:.3g}"
        for name, found in candidates.items()
    )


def to_json(chosen: str, candidates: Mapping[str, Measured]) -> dict[str, Any]:
    """The decision, for the store's attributes."""
    return {"chosen": chosen} | {name: found._asdict() for name, found in candidates.items()}
