"""The optimizers that a spec may choose from, each with its own keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from vmcjob.document import Clash, above, at_least, between, inside

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


@dataclass(frozen=True)
class Kfac:
    """The natural gradient with a Fisher matrix of Kronecker-factored blocks."""

    kind: Annotated[Literal["kfac"], "K-FAC through kfac-jax"] = "kfac"
    learning_rate: LearningRate = 0.05
    decay_steps: DecaySteps = 10_000.0
    damping: Annotated[float, above(0), "added to the diagonal of the Fisher matrix, at first"] = (
        1e-3
    )
    damping_decay_steps: Annotated[
        float | None, above(0), "damping after t steps: damping / (1 + t / damping_decay_steps)"
    ] = None
    damping_minimum: Annotated[float | None, above(0), "where its decay ends"] = None
    momentum: Annotated[float, at_least(0), inside(-1, 1), "of the last update kept"] = 0.0
    norm_constraint: NormConstraint = 1e-3
    curvature_decay: Annotated[
        float, at_least(0), inside(-1, 1), "weight of the past in the mean of the Fisher matrix"
    ] = 0.95
    inverse_period: Annotated[int, between(1, 100_000), "steps from one inversion to the next"] = 1
    inverse: Annotated[
        Literal["factored", "exact"], "damping shared by the factors of a block, or added to it"
    ] = "factored"
    burn_in: Annotated[int, at_least(0), "first steps, which measure the Fisher matrix only"] = 0
    l2: Annotated[float, at_least(0), "penalty on parameters, l2 / 2 times their squared norm"] = (
        0.0
    )
    clip: Clip = 5.0
    clip_centre: ClipCentre = "median"

    def clashes(self) -> Iterator[Clash]:
        """A minimum of the damping that no decay leads to."""
        if self.damping_minimum is None:
            return
        if self.damping_decay_steps is None:
            yield Clash(("damping_minimum",), "there is no decay without damping_decay_steps")
        elif self.damping < self.damping_minimum:
            message = f"a damping of {self.damping:g} cannot decay to {self.damping_minimum:g}"
            yield Clash(("damping_minimum", "damping"), message)


B1 = Annotated[float, at_least(0), inside(-1, 1), "of the mean gradient kept at a step"]
B2 = Annotated[float, at_least(0), inside(-1, 1), "of the mean squared gradient kept at a step"]


@dataclass(frozen=True)
class Adam:
    """Gradient descent, every parameter at a pace of its own."""

    kind: Annotated[Literal["adam"], "gradient descent by Adam"] = "adam"
    learning_rate: LearningRate = 1e-3
    decay_steps: DecaySteps = 10_000.0
    b1: B1 = 0.9
    b2: B2 = 0.999
    clip: Clip = 5.0
    clip_centre: ClipCentre = "median"


@dataclass(frozen=True)
class Lamb:
    """Adam with steps in proportion to the array of parameters that they change."""

    kind: Annotated[Literal["lamb"], "gradient descent by LAMB"] = "lamb"
    learning_rate: LearningRate = 1e-3
    decay_steps: DecaySteps = 10_000.0
    b1: B1 = 0.9
    b2: B2 = 0.999
    clip: Clip = 5.0
    clip_centre: ClipCentre = "median"


Optimizer: TypeAlias = Spring | MinSr | Sr | Kfac | Adam | Lamb
"""The key `kind` of a spec chooses."""

DEFAULT_OPTIMIZER: Final = Spring()
