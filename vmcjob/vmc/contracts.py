"""The nouns that the chapters of `vmcjob.vmc` share: who calls whom with what."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jax import Array
from jaxtyping import Bool, Float

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


class LoopState(NamedTuple):
    """All that one step hands to the next; nothing else decides what the next step does."""

    params: Params
    optimizer: OptimizerState
    chain: ChainState
    average: Params | None = None  # of the parameters over the end of training, where it is kept


class UpdateInfo(NamedTuple):
    """What an optimizer tells about one update; logged, never fed back."""

    grad_norm: Float[Array, ""]  # ‖∂E/∂θ‖, hartree
    update_norm: Float[Array, ""]  # ‖δθ‖
    learning_rate: Float[Array, ""]
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


@runtime_checkable
class Optimizer(Protocol):
    """Turns walkers and their local energies into better parameters.

    Life cycle: `init` once, then `update` at every training step, inside pmap: `r` and `e_loc`
    hold the walkers of one device, `params` and `state` are equal on all devices and stay so.
    """

    def init(self, params: Params) -> OptimizerState:
        """The state before the first update."""
        ...

    def update(
        self,
        params: Params,
        state: OptimizerState,
        r: Float[Array, "walker elec 3"],
        e_loc: Float[Array, " walker"],
        step: Array,
    ) -> tuple[Params, OptimizerState, UpdateInfo]:
        """Parameters after update number `step` (counted from 0)."""
        ...
