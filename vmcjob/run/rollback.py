"""Rollbacks to the last commit: causes, and the policy for the steps afterwards."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from vmcjob.spec import Adam, JobSpec, Lamb
from vmcjob.vmc.phases import Phase

MAX_HALVINGS = 4  # of a chunk; what is short of memory with a sixteenth is so for other reasons


class NotFiniteError(Exception):
    """Energy, parameters or walkers of a step are not finite on some device."""

    def __init__(self, step: int) -> None:
        super().__init__(f"not finite in step {step}")
        self.step = step


class ExplosionError(Exception):
    """Energies of a training that its earlier steps cannot explain."""

    def __init__(self, step: int) -> None:
        super().__init__(f"explosion in step {step}")
        self.step = step


class Cause(StrEnum):
    """The cause of a rollback."""

    NOT_FINITE = "not finite"
    EXPLOSION = "explosion"
    OUT_OF_MEMORY = "out of memory"


DIVERGENCES: Final = {
    Cause.NOT_FINITE: "energy, parameters or walkers ceased to be finite",
    Cause.EXPLOSION: "the energy left what the steps before, or physics, can explain",
}
"""What `train.rollbacks` counts, and what to say when there were too many."""


@dataclass(frozen=True)
class Rollback:
    """One rollback, from the failed step to the last commit."""

    cause: Cause
    phase: Phase
    step: int
    to_phase: Phase
    to_step: int

    def __str__(self) -> str:
        remedy = {
            Cause.NOT_FINITE: "half the step and other random numbers",
            Cause.EXPLOSION: "half the step and other random numbers",
            Cause.OUT_OF_MEMORY: "half as many walkers at a time",
        }
        return (
            f"{self.cause} in {self.phase} step {self.step}; "
            f"back to {self.to_phase} step {self.to_step}, with {remedy[self.cause]}"
        )

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read a rollback from a store's record, the output of `dataclasses.asdict`."""
        return cls(
            cause=Cause(record["cause"]),
            phase=Phase(record["phase"]),
            step=record["step"],
            to_phase=Phase(record["to_phase"]),
            to_step=record["to_step"],
        )


@dataclass(frozen=True)
class RetryPolicy:
    """Changes to a run after its rollbacks.

    After numbers that are not finite, or an explosion: other random numbers, and half the step.
    After lack of memory: half as many walkers at a time.
    """

    retries: int = 0
    chunk_divisor: int = 1

    @classmethod
    def after(cls, rollbacks: Iterable[Rollback]) -> Self:
        """The policy after all rollbacks of a run."""
        count = Counter(rollback.cause for rollback in rollbacks)
        retries = sum(count[cause] for cause in DIVERGENCES)
        return cls(retries, 2 ** count[Cause.OUT_OF_MEMORY])

    def of_steps(self, spec: JobSpec) -> JobSpec:
        """The spec with its step halved once for each divergence.

        The norm constraint limits the square of a step.
        """
        shorter = 0.5**self.retries
        rate = spec.optimizer.learning_rate * shorter
        optimizer = replace(spec.optimizer, learning_rate=rate)
        if not isinstance(optimizer, Adam | Lamb):
            limit = optimizer.norm_constraint * shorter**2
            optimizer = replace(optimizer, norm_constraint=limit)
        rate = spec.pretrain.learning_rate * shorter
        return replace(
            spec, optimizer=optimizer, pretrain=replace(spec.pretrain, learning_rate=rate)
        )


FIRST_TRY: Final = RetryPolicy()
"""What a spec says and no more."""


def advice(phase: Phase) -> str:
    """Advice for the user after too many rollbacks."""
    if phase is Phase.PRETRAIN:
        return "Try a smaller pretrain.learning_rate"
    if phase is Phase.EVALUATE:
        return "Try another seed, or train longer"
    return (
        "Try a smaller optimizer.learning_rate or optimizer.norm_constraint, or a larger "
        "optimizer.damping"
    )
