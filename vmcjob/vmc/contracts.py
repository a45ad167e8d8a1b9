"""The nouns that the chapters of `vmcjob.vmc` share: who calls whom with what."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, runtime_checkable

from jax import Array
from jaxtyping import Bool, Float, Int

from vmcjob.columns import Column

# A flax parameter tree; its structure is the ansatz's own business.
Params = Any
# Whatever an optimizer remembers between updates: a pytree of arrays, checkpointed whole.
OptimizerState = Any


class Nuclei(NamedTuple):
    """Clamped nuclei: arguments of programs, so that all geometries share them."""

    positions: Float[Array, "nuc 3"]  # bohr
    charges: Float[Array, " nuc"]  # units of e


class Psi(NamedTuple):
    """A wave function at a point, by its logarithm, which neither under- nor overflows."""

    phase: Float[Array, ""]  # ψ / |ψ|: 1 or −1, and 0 at a node
    log_abs: Float[Array, ""]  # log|ψ|, −∞ at a node


SignedWaveFunction = Callable[[Params, Float[Array, "elec 3"], Nuclei], Psi]
"""``(params, r, nuclei) -> ψ`` for one walker, real."""

LogPsi = Callable[[Params, Float[Array, "elec 3"]], Float[Array, ""]]
"""``(params, r) -> log|ψ(r)|`` for one walker; where nuclei stay, all that most methods need."""

LocalEnergies = Callable[[Params, Float[Array, "walker elec 3"]], Float[Array, " walker"]]
"""``(params, r) -> (Hψ)(r) / ψ(r)`` for the walkers of one device, in hartree; inside pmap."""


class ChainState(NamedTuple):
    """What the Markov chain of a batch of walkers remembers between steps."""

    r: Float[Array, "walker elec 3"]
    width: Float[Array, ""]  # standard deviation of a move, bohr
    age: Int[Array, " walker"] | None = None  # moves refused in a row, where they are counted


class LoopState(NamedTuple):
    """All that one step hands to the next; nothing else decides what the next step does."""

    params: Params
    optimizer: OptimizerState
    chain: ChainState
    average: Params | None = None  # of the parameters over the end of training, where it is kept


class UpdateInfo(NamedTuple):
    """What is told about one update, whatever the optimizer; logged, never fed back."""

    grad_norm: Float[Array, ""]  # ‖∂E/∂θ‖, hartree
    update_norm: Float[Array, ""]  # ‖δθ‖
    learning_rate: Float[Array, ""]  # η, as short as the norm constraint made it
    n_clipped: Float[Array, ""]  # walkers whose local energy was clipped for the gradient


class Trust(NamedTuple):
    """What became of an update."""

    ess: Float[Array, ""]  # part of the walkers that still count after it
    part: Float[Array, ""]  # of the update, that was made


class StepInfo(NamedTuple):
    """What one step of the loop tells; energies are means over all walkers of all devices."""

    energy: Float[Array, ""]  # hartree, unclipped
    variance: Float[Array, ""]  # hartree², of the local energy
    acceptance: Float[Array, ""]
    width: Float[Array, ""]  # bohr
    update: UpdateInfo | None  # None where parameters are frozen
    is_finite: Bool[Array, ""]  # energy, parameters and walkers, over all devices
    median: Float[Array, ""] | None = None  # local energy, hartree; where parameters move
    trust: Trust | None = None  # in the update
    observed: Mapping[str, Array] | None = None  # by column; NaN in steps in which none is due
    told: Mapping[str, Array] | None = None  # by the optimizer's own columns
    max_age: Int[Array, ""] | None = None  # moves refused in a row, of the walker with the most
    traits: Mapping[str, Array] | None = None  # of the state, in evaluation; NaN where not due


Metric = Literal["overlap", "euclidean", "curvature"]

METRICS: Final[Mapping[Metric, str]] = MappingProxyType(
    {
        "overlap": "δᵀ S δ with S, the overlap matrix of the scores: the squared change of ψ",
        "euclidean": "δᵀ δ",
        "curvature": "δᵀ A δ with A, the damped curvature in which δ is steepest: A d = g",
    }
)
"""The squared length of a step δ = −η d, by what an optimizer takes for the metric of θ."""


class Batch(NamedTuple):
    """What one training step hands to an optimizer: this device's walkers, measured."""

    r: Float[Array, "walker elec 3"]  # bohr
    log_abs: Float[Array, " walker"]  # log|ψ| there
    e_loc: Float[Array, " walker"]  # clipped, hartree
    deviations: Float[Array, " walker"]  # of these from their mean over all devices
    step: Array  # counted from 0


class Proposal(NamedTuple):
    """Where an optimizer wants to go: δθ = share · (drift − η direction), parameters flat."""

    direction: Float[Array, " param"]  # d
    square: Float[Array, ""]  # of d in the optimizer's metric, not negative
    gradient: Float[Array, " param"]  # ∂E/∂θ of the batch, hartree; only to be told
    drift: Float[Array, " param"] | float = 0.0  # what is added whatever η
    share: Array | float = 1.0  # 0 where an optimizer only measures as yet
    memory: Any = None  # what `remember` is to know of how the proposal came about
    told: Mapping[str, Array] = MappingProxyType({})  # by the optimizer's own columns


class Made(NamedTuple):
    """The step that was made of a proposal."""

    delta: Float[Array, " param"]  # δθ
    eta: Float[Array, ""]  # η, as short as the norm constraint made it
    rate: Float[Array, ""]  # η before


@runtime_checkable
class Optimizer(Protocol):
    """Turns walkers and their local energies into a direction; `update.UpdateRule` goes there.

    Life cycle: `init` once, then `propose` and `remember` at every training step, inside pmap: a
    batch holds the walkers of one device; parameters, states, proposals and steps are equal on all
    devices and stay so.
    """

    columns: ClassVar[Mapping[str, Column]]
    """What it tells in every step, beside what all optimizers do; numbers."""

    @property
    def metric(self) -> Metric:
        """What the norm constraint measures a step in."""
        ...

    def init(self, params: Params) -> OptimizerState:
        """The state before the first update."""
        ...

    def propose(self, params: Params, state: OptimizerState, batch: Batch) -> Proposal:
        """The direction in which the energy falls, as this optimizer sees it."""
        ...

    def remember(self, proposal: Proposal, made: Made) -> OptimizerState:
        """The state after a step, whether or not `trust` then shortens it."""
        ...
