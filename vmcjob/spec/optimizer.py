"""The optimizers that a spec may choose, each with its own keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from vmcjob.document import Before, Clash, above, at_least, between, from_to_below, inside

LearningRate = Annotated[float, above(0), "of the first step"]
Damping = Annotated[float, above(0), "added to the diagonal of the overlap matrix"]
# One key with one meaning; each kind has its own metric (`vmcjob.vmc.contracts.METRICS`).
OverlapConstraint = Annotated[
    float, above(0), "squared length of an update at most, by the overlap matrix: of psi's change"
]
EuclideanConstraint = Annotated[
    float, above(0), "squared length of an update at most, by its plain norm"
]
CurvatureConstraint = Annotated[
    float, above(0), "squared length of an update at most, by the damped Fisher matrix"
]

PLATEAU: Final = 0.2
FINAL_RATE: Final = 0.01

DAMPING_RANGE: Final = 100.0
"""Default factor by which an adapted damping may differ from its first value."""

CLIP: Final = 5.0
CLIP_WITH_CORES: Final = 50.0
"""Inside a core, ψ is small, walkers are few, and local energies are off by hartrees. Clipped at 5
mean deviations, tenths of a hartree or less, such walkers teach nothing: training lowers the median
of the local energies and not their mean."""


@dataclass(frozen=True)
class Shared:
    """Keys of all kinds: clipping and learning-rate schedule.

    The learning rate falls in proportion to the training, or with `decay_steps`.
    """

    decay_steps: Annotated[
        float | None,
        above(0),
        "a pace of its own: learning_rate / (1 + t / decay_steps) after t steps",
    ] = None
    plateau: Annotated[
        float | None,
        from_to_below(0, 1),
        f"part of the training before learning_rate falls; {PLATEAU}",
        Before(None),
    ] = None
    final_rate: Annotated[
        float | None,
        above(0),
        f"part of learning_rate, and of the largest step, at the end; {FINAL_RATE}",
        Before(None),
    ] = None
    clip: Annotated[
        float | None,
        above(0),
        f"local energies are clipped at so many mean deviations; {CLIP:g}, "
        f"or {CLIP_WITH_CORES:g} with core potentials",
    ] = None
    clip_centre: Annotated[Literal["median", "mean"], "what the deviations are taken from"] = (
        "median"
    )

    def __post_init__(self) -> None:
        """Set the defaults of the schedule, if there is no `decay_steps`."""
        if self.decay_steps is None:
            for key, value in {"plateau": PLATEAU, "final_rate": FINAL_RATE}.items():
                if getattr(self, key) is None:
                    object.__setattr__(self, key, value)

    def clashes(self) -> Iterator[Clash]:
        """Two schedules at once."""
        for key in ("plateau", "final_rate") if self.decay_steps is not None else ():
            if getattr(self, key) is not None:
                message = "decay_steps is another schedule; leave one of both out"
                yield Clash((key, "decay_steps"), message)


@dataclass(frozen=True)
class Sr(Shared):
    """Stochastic reconfiguration by conjugate gradients."""

    kind: Annotated[Literal["sr"], "stochastic reconfiguration by conjugate gradients"] = "sr"
    learning_rate: LearningRate = 0.3
    damping: Damping = 1e-3
    norm_constraint: OverlapConstraint = 1e-2
    scores: Annotated[
        Literal["lazy", "dense"], "products with the scores, or their whole matrix (vmcnet: mode)"
    ] = "lazy"
    cg_iterations: Annotated[
        int, between(1, 100_000), "conjugate-gradient steps at most (vmcnet: maxiter)"
    ] = 20
    cg_tolerance: Annotated[float, above(0), "residual that ends them, relative"] = 1e-4


@dataclass(frozen=True)
class MinSr(Shared):
    """The update of SR, from a linear system with one unknown per walker."""

    kind: Annotated[Literal["minsr"], "stochastic reconfiguration in sample space"] = "minsr"
    learning_rate: LearningRate = 0.3
    damping: Damping = 1e-3
    norm_constraint: OverlapConstraint = 1e-2


@dataclass(frozen=True)
class Spring(Shared):
    """MinSR that keeps a part of the last update where the walkers do not determine it."""

    kind: Annotated[Literal["spring"], "MinSR with a memory of earlier updates"] = "spring"
    learning_rate: LearningRate = 0.1
    damping: Damping = 1e-2
    damping_minimum: Annotated[
        float,
        at_least(0),
        "damping falls to this while the memory grows, or with the variance; 0: it stays",
        Before(0.0),
    ] = 1e-3
    damping_per_variance: Annotated[
        float,
        at_least(0),
        "does not fall below so much of the local energies' variance in hartree²; 0: it may",
        Before(0.0),
    ] = 0.01
    momentum: Annotated[float, from_to_below(0, 1), "of the last update kept"] = 0.99
    momentum_growth: Annotated[
        float,
        at_least(0),
        "steps of memory that a step adds to the first ten; 0: all of momentum's at once",
        Before(0.0),
    ] = 0.5
    norm_constraint: EuclideanConstraint = 1e-2


@dataclass(frozen=True)
class Kfac(Shared):
    """The natural gradient with a Fisher matrix of Kronecker-factored blocks."""

    kind: Annotated[Literal["kfac"], "K-FAC through kfac-jax"] = "kfac"
    learning_rate: LearningRate = 0.05
    damping: Annotated[float, above(0), "added to the diagonal of the Fisher matrix, at first"] = (
        1e-3
    )
    damping_decay_steps: Annotated[
        float | None, above(0), "damping after t steps: damping / (1 + t / damping_decay_steps)"
    ] = None
    damping_adaptation_period: Annotated[
        int | None,
        between(1, 100_000),
        "steps between two adaptations of the damping (kfac-jax: damping_adaptation_interval)",
    ] = None
    damping_adaptation_decay: Annotated[
        float | None,
        inside(0, 1),
        "factor per step of an adapted damping; 0.95 (kfac-jax: damping_adaptation_decay)",
    ] = None
    damping_minimum: Annotated[
        float | None,
        above(0),
        "where the decay ends; if adapted, a hundredth of damping (kfac-jax: min_damping)",
    ] = None
    damping_maximum: Annotated[
        float | None,
        above(0),
        "limit of an adapted damping; a hundred times damping (kfac-jax: max_damping)",
    ] = None
    momentum: Annotated[float, from_to_below(0, 1), "of the last update kept"] = 0.0
    norm_constraint: CurvatureConstraint = 1e-3
    curvature_decay: Annotated[
        float,
        from_to_below(0, 1),
        "weight of the past in the mean Fisher matrix (kfac-jax: curvature_ema)",
    ] = 0.95
    inverse_period: Annotated[
        int, between(1, 100_000), "steps between two inversions (kfac-jax: inverse_update_period)"
    ] = 1
    inverse: Annotated[
        Literal["factored", "exact"], "damping shared by the factors of a block, or added to it"
    ] = "factored"
    estimation_mode: Annotated[
        Literal["fisher_exact", "fisher_gradients"],
        "Fisher matrix itself, or its estimate from random samples (kfac-jax: estimation_mode)",
    ] = "fisher_exact"
    burn_in: Annotated[
        int,
        at_least(0),
        "first steps, which only measure the Fisher matrix (kfac-jax: num_burnin_steps)",
    ] = 0
    l2: Annotated[
        float,
        at_least(0),
        "penalty on parameters, l2 / 2 times their squared norm (kfac-jax: l2_reg)",
    ] = 0.0

    def __post_init__(self) -> None:
        """Set rate and limits of an adapted damping."""
        super().__post_init__()
        if self.damping_adaptation_period is None:
            return
        defaults = {
            "damping_adaptation_decay": 0.95,  # arXiv:1503.05671, section 6.5
            "damping_minimum": self.damping / DAMPING_RANGE,
            "damping_maximum": self.damping * DAMPING_RANGE,
        }
        for key, value in defaults.items():
            if getattr(self, key) is None:
                object.__setattr__(self, key, value)

    def clashes(self) -> Iterator[Clash]:
        """Two schedules of the damping at once, or limits without a schedule."""
        yield from super().clashes()
        adapts, decays = self.damping_adaptation_period, self.damping_decay_steps
        low, high = self.damping_minimum, self.damping_maximum
        if adapts and decays:
            message = "a damping that is adapted does not decay; leave one of both out"
            yield Clash(("damping_adaptation_period", "damping_decay_steps"), message)
        for key in () if adapts else ("damping_adaptation_decay", "damping_maximum"):
            if getattr(self, key) is not None:
                yield Clash((key,), "there is no adaptation without damping_adaptation_period")
        if low is not None and not (adapts or decays):
            message = "nothing leads there but damping_decay_steps or damping_adaptation_period"
            yield Clash(("damping_minimum",), message)
        elif low is not None and self.damping < low:
            message = f"a damping of {self.damping:g} cannot decay to {low:g}"
            yield Clash(("damping_minimum", "damping"), message)
        if adapts and high is not None and self.damping > high:
            message = f"a damping of {self.damping:g} cannot rise to {high:g}"
            yield Clash(("damping_maximum", "damping"), message)


B1 = Annotated[float, from_to_below(0, 1), "of the mean gradient kept at a step"]
B2 = Annotated[float, from_to_below(0, 1), "of the mean squared gradient kept at a step"]


@dataclass(frozen=True)
class Adam(Shared):
    """Gradient descent with a step size for each parameter."""

    kind: Annotated[Literal["adam"], "gradient descent by Adam"] = "adam"
    learning_rate: LearningRate = 1e-3
    b1: B1 = 0.9
    b2: B2 = 0.999


@dataclass(frozen=True)
class Lamb(Shared):
    """Adam with steps in proportion to the size of each array of parameters."""

    kind: Annotated[Literal["lamb"], "gradient descent by LAMB"] = "lamb"
    learning_rate: LearningRate = 1e-3
    b1: B1 = 0.9
    b2: B2 = 0.999


Optimizer: TypeAlias = Spring | MinSr | Sr | Kfac | Adam | Lamb
"""The optimizer that the key `kind` of a spec chooses."""

DEFAULT_OPTIMIZER: Final = Spring()
