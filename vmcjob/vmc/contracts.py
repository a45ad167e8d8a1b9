"""Types and contracts that the modules of `vmcjob.vmc` share."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, runtime_checkable

from jax import Array
from jaxtyping import Bool, Float, Int

from vmcjob.columns import Column

# A flax parameter tree; only the ansatz knows its structure.
Params = Any
# State of an optimizer between updates: a pytree of arrays, saved whole in checkpoints.
OptimizerState = Any


class Nuclei(NamedTuple):
    """Clamped nuclei. They are arguments of programs, so that all geometries share a program."""

    positions: Float[Array, "nuc 3"]  # bohr
    charges: Float[Array, " nuc"]  # units of e


class Psi(NamedTuple):
    """A wave function at a point; its logarithm neither underflows nor overflows."""

    phase: Float[Array, ""]  # ψ / |ψ|: 1 or −1, and 0 at a node
    log_abs: Float[Array, ""]  # log|ψ|, −∞ at a node


SignedWaveFunction = Callable[[Params, Float[Array, "elec 3"], Nuclei], Psi]
"""``(params, r, nuclei) -> ψ`` for one walker, real."""

LogPsi = Callable[[Params, Float[Array, "elec 3"]], Float[Array, ""]]
"""``(params, r) -> log|ψ(r)|`` for one walker with fixed nuclei; enough for most methods."""

LocalEnergies = Callable[[Params, Float[Array, "walker elec 3"]], Float[Array, " walker"]]
"""``(params, r) -> (Hψ)(r) / ψ(r)`` for the walkers of one device, in hartree; in pmap."""


class ChainState(NamedTuple):
    """State of the Markov chain of a batch of walkers between steps."""

    r: Float[Array, "walker elec 3"]
    width: Float[Array, ""]  # standard deviation of a move, bohr
    age: Int[Array, " walker"] | None = None  # moves refused in a row, if they are counted
    tally: Float[Array, "walker 3"] | None = None  # of its energies, see `energy.count`


class LoopState(NamedTuple):
    """The state between two steps; nothing else determines the next step."""

    params: Params
    optimizer: OptimizerState
    chain: ChainState
    # parameters averaged over the end of training, if they are averaged
    average: Params | None = None
    # changes of the parameters with the nuclei, if an observable takes them, see `response`
    response: Float[Array, "change param"] | None = None


class UpdateInfo(NamedTuple):
    """Facts about one update that every optimizer reports; logged, never fed back."""

    grad_norm: Float[Array, ""]  # ‖∂E/∂θ‖, hartree
    update_norm: Float[Array, ""]  # ‖δθ‖
    learning_rate: Float[Array, ""]  # η after the norm constraint
    n_clipped: Float[Array, ""]  # walkers whose local energy was clipped for the gradient


class Trust(NamedTuple):
    """The part of an update that was made, and its effect on the walkers."""

    ess: Float[Array, ""]  # effective sample size after the update, as a part of all walkers
    part: Float[Array, ""]  # part of the update that was made


class StepInfo(NamedTuple):
    """Report of one step; energies are means over all walkers of all devices."""

    energy: Float[Array, ""]  # hartree, unclipped
    variance: Float[Array, ""]  # hartree², of the local energy
    acceptance: Float[Array, ""]
    width: Float[Array, ""]  # bohr
    update: UpdateInfo | None  # None if parameters are frozen
    is_finite: Bool[Array, ""]  # for energy, parameters and walkers on all devices
    median: Float[Array, ""] | None = None  # median local energy, hartree; only in training
    trust: Trust | None = None  # only in training
    observed: Mapping[str, Array] | None = None  # by column; NaN in steps without an observation
    told: Mapping[str, Array] | None = None  # by the optimizer's own columns
    # largest number of moves that one walker refused in a row
    max_age: Int[Array, ""] | None = None
    traits: Mapping[str, Array] | None = None  # of the state, in evaluation; NaN where not due


Metric = Literal["overlap", "euclidean", "curvature"]

METRICS: Final[Mapping[Metric, str]] = MappingProxyType(
    {
        "overlap": "δᵀ S δ with S, the overlap matrix of the scores: the squared change of ψ",
        "euclidean": "δᵀ δ",
        "curvature": "δᵀ A δ with A, the damped curvature in which δ is steepest: A d = g",
    }
)
"""Squared length of a step δ = −η d in the optimizer's metric of θ, by the metric's name."""


class Batch(NamedTuple):
    """Input of an optimizer in one training step: the walkers of this device."""

    r: Float[Array, "walker elec 3"]  # bohr
    log_abs: Float[Array, " walker"]  # log|ψ| at r
    e_loc: Float[Array, " walker"]  # clipped, hartree
    deviations: Float[Array, " walker"]  # deviations of e_loc from the mean over all devices
    step: Array  # counted from 0


class Proposal(NamedTuple):
    """An optimizer's proposal: δθ = share · (drift − η direction), with flat parameters."""

    direction: Float[Array, " param"]  # d
    square: Float[Array, ""]  # squared length of d in the optimizer's metric, not negative
    gradient: Float[Array, " param"]  # ∂E/∂θ of the batch, hartree; only reported
    drift: Float[Array, " param"] | float = 0.0  # added independently of η
    share: Array | float = 1.0  # 0 while an optimizer only measures
    memory: Any = None  # input of `remember` about how the proposal was made
    told: Mapping[str, Array] = MappingProxyType({})  # by the optimizer's own columns


class Made(NamedTuple):
    """The step that was made from a proposal."""

    delta: Float[Array, " param"]  # δθ
    eta: Float[Array, ""]  # η after the norm constraint
    rate: Float[Array, ""]  # η before the norm constraint


@runtime_checkable
class Optimizer(Protocol):
    """Turns walkers and their local energies into a direction; `update.UpdateRule` makes the step.

    Life cycle: `init` once, then `propose` and `remember` at every training step, inside pmap. A
    batch holds the walkers of one device. Parameters, states, proposals and steps are equal on all
    devices.
    """

    columns: ClassVar[Mapping[str, Column]]
    """Numbers that it reports in every step, besides those that all optimizers report."""

    @property
    def metric(self) -> Metric:
        """The metric in which the norm constraint measures a step."""
        ...

    def init(self, params: Params) -> OptimizerState:
        """The state before the first update."""
        ...

    def propose(self, params: Params, state: OptimizerState, batch: Batch) -> Proposal:
        """The direction in which this optimizer lowers the energy."""
        ...

    def remember(self, proposal: Proposal, made: Made) -> OptimizerState:
        """The state after a step, even if `trust` then shortens the step."""
        ...
