"""The optimizers that a spec may choose from, each with its own keys."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from vmcjob.document import above, at_least, between, inside

LearningRate = Annotated[float, above(0), "of the first step"]
DecaySteps = Annotated[
    float, above(0), "learning rate after t steps: learning_rate / (1 + t / decay_steps)"
]
Damping = Annotated[float, above(0), "added to the diagonal of the overlap matrix"]
NormConstraint = Annotated[float, above(0), "largest squared change of psi per update"]
Clip = Annotated[float, above(0), "local energies are clipped at so many mean deviations"]
ClipCentre = Annotated[Literal["median", "mean"], "what the deviations are taken from"]


@dataclass(frozen=True)
class Sr:
    """Stochastic reconfiguration, its linear system solved by conjugate gradients."""

    kind: Annotated[Literal["sr"], "stochastic reconfiguration by conjugate gradients"] = "sr"
    learning_rate: LearningRate = 0.3
    decay_steps: DecaySteps = 1000.0
    damping: Damping = 1e-3
    norm_constraint: NormConstraint = 1e-2
    scores: Annotated[
        Literal["lazy", "dense"], "products with them, or the whole matrix of them"
    ] = "lazy"
    cg_iterations: Annotated[int, between(1, 100_000), "conjugate-gradient steps at most"] = 20
    cg_tolerance: Annotated[float, above(0), "residual that ends them, relative"] = 1e-4
    clip: Clip = 5.0
    clip_centre: ClipCentre = "median"


@dataclass(frozen=True)
class MinSr:
    """The same update as SR, from a linear system with one unknown per walker."""

    kind: Annotated[Literal["minsr"], "stochastic reconfiguration in sample space"] = "minsr"
    learning_rate: LearningRate = 0.3
    decay_steps: DecaySteps = 1000.0
    damping: Damping = 1e-3
    norm_constraint: NormConstraint = 1e-2
    clip: Clip = 5.0
    clip_centre: ClipCentre = "median"


@dataclass(frozen=True)
class Spring:
    """MinSR that keeps a part of the last update where the walkers do not speak against it."""

    kind: Annotated[Literal["spring"], "MinSR with a memory of earlier updates"] = "spring"
    learning_rate: LearningRate = 0.1
    decay_steps: DecaySteps = 300.0
    damping: Damping = 1e-3
    momentum: Annotated[float, at_least(0), inside(-1, 1), "of the last update kept"] = 0.99
    norm_constraint: Annotated[float, above(0), "largest squared norm of an update"] = 1e-2
    clip: Clip = 5.0
    clip_centre: ClipCentre = "median"


Optimizer: TypeAlias = Sr | MinSr | Spring
"""The key `kind` of a spec chooses."""

DEFAULT_OPTIMIZER: Final = Sr()
