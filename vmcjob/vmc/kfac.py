"""K-FAC: the natural gradient with a block-diagonal Fisher matrix that is cheap to invert.

With the scores O of the walkers, not centred, and each block by itself,

    F = 2 ⟨O Oᵀ⟩,    g = ⟨(E_loc − ⟨E_loc⟩) O⟩ + l θ,    d = (F + l + λ)⁻¹ g,    δθ = −η d + μ δθ₀

where δθ₀ is the previous update. The block of a dense layer is approximated by the Kronecker
product of second moments: of its inputs, and of the gradients at its outputs (arXiv:1503.05671;
shared by electrons or pairs, arXiv:1806.00250; in VMC, arXiv:1909.02487, section II D).

F is the Fisher matrix of a normal distribution of variance ½ around log|ψ|, as in kfac-jax and in
published settings of VMC. So λ here is 2 λ of SR, and η is 2 η of SR. From samples of that
distribution, F is 2 ⟨x² O Oᵀ⟩ with a standard normal number x for each walker: the same on average.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from vmcjob.columns import Column
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, LogPsi, Made, Metric, OptimizerState, Params, Proposal
from vmcjob.vmc.damping import Adaptation, Trial
from vmcjob.vmc.kfac_layers import load, make_curvature, name_blocks
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.scores import Vector, lazy_scores
from vmcjob.vmc.streams import device_key, stream_key

# Other modes of kfac-jax are left out. "…_curvature_prop" and "ggn_exact" give the numbers of
# "fisher_exact", because log|ψ| is one number, and blocks are squares of its gradient for one
# walker. "fisher_empirical" needs targets, which log|ψ| does not have.
EstimationMode = Literal["fisher_exact", "fisher_gradients"]


class KfacState(NamedTuple):
    """Moving averages of the factors, their inverses if these are kept, and the last update."""

    blocks: Any  # of kfac-jax: a tuple with a pytree of arrays for each block
    velocity: Vector  # δθ₀
    damping: Array | None  # λ of the next step, if it is adapted


class Asked(NamedTuple):
    """The input of a proposal, and the blocks after it."""

    params: Params
    batch: Batch
    blocks: Any
    damping: Array | None  # λ, if it is adapted


@dataclass(frozen=True)
class Kfac:
    """K-FAC (an `Optimizer`). Raises KfacUnavailableError without a kfac-jax that fits JAX.

    Args:
        log_psi: one walker's log|ψ|.
        n_electrons: of one walker, to trace its score before walkers exist.
        damping: λ, from a schedule, or adapted to the quality of the steps.
        momentum: μ, below 1.
        curvature_decay: weight of the past in the moving averages of a block, below 1.
        inverse_period: steps between two inversions of the blocks; λ of a block is fixed in
            between.
        is_inverse_exact: whether λ is added to a block's eigenvalues, or to those of its factors.
        estimation_mode: of F, in kfac-jax's words: exact, or from samples.
        burn_in: first steps, which measure F without changing parameters.
        l2: l, weight of the penalty ½ l ‖θ‖², in hartree.
        seed, stream: of the samples; see `streams.stream_key`.
    """

    columns: ClassVar[Mapping[str, Column]] = {"damping": Column("1", "damping")}

    log_psi: LogPsi
    n_electrons: int
    damping: Decay | Adaptation
    momentum: float
    curvature_decay: float
    inverse_period: int
    is_inverse_exact: bool
    estimation_mode: EstimationMode
    burn_in: int
    l2: float
    seed: int
    stream: int

    def __post_init__(self) -> None:
        load()

    @property
    def metric(self) -> Metric:
        """F + l + λ, in which d is the steepest direction: |d|² is dᵀ g. Momentum is free."""
        return "curvature"

    def init(self, params: Params) -> KfacState:
        """The state without averages and without an update."""
        flat, _ = ravel_pytree(params)
        r = self._any_walkers(params)
        curvature = make_curvature(self.log_psi, params, r)
        kept = -1 if self.inverse_period > 1 else None
        state = curvature.init(
            rng=jax.random.key(0),  # for blocks with a random start; blocks here start at zero
            func_args=(params, r),
            exact_powers_to_cache=kept if self.is_inverse_exact else None,
            approx_powers_to_cache=None if self.is_inverse_exact else kept,
            cache_eigenvalues=False,
        )
        damping = None
        if isinstance(self.damping, Adaptation):
            damping = jnp.asarray(self.damping.initial, flat.dtype)
        return KfacState(state.blocks_states, jnp.zeros_like(flat), damping)

    def propose(self, params: Params, state: OptimizerState, batch: Batch) -> Proposal:
        """The direction d and the drift μ δθ₀; inside pmap. See `Optimizer.propose`."""
        flat, unravel = ravel_pytree(params)
        scores = lazy_scores(self.log_psi, params, batch.r)
        of_energy = devices.mean(scores.apply_transpose(batch.deviations) / batch.r.shape[0])
        gradient = of_energy + self.l2 * flat
        damping = self.damping(batch.step) if isinstance(self.damping, Decay) else state.damping
        blocks, natural = self._precondition(
            params, state.blocks, batch, unravel(gradient), damping
        )
        direction, _ = ravel_pytree(natural)
        return Proposal(
            direction,
            square=jnp.vdot(direction, gradient),
            gradient=2.0 * of_energy,
            drift=self.momentum * state.velocity,
            share=jnp.where(batch.step < self.burn_in, 0.0, 1.0).astype(flat.dtype),
            memory=Asked(params, batch, blocks, state.damping),
            told={"damping": jnp.asarray(damping, flat.dtype)},
        )

    def remember(self, proposal: Proposal, made: Made) -> KfacState:
        """The step as momentum, and the damping, judged by the part of the step along d."""
        asked, eta, damping = proposal.memory, made.eta, None
        if isinstance(self.damping, Adaptation):
            predicted = eta * (1.0 - 0.5 * eta / made.rate) * proposal.square
            trial = Trial(asked.params, -eta * proposal.direction, asked.batch, predicted)
            damping = self.damping.after(asked.damping, trial)
        return KfacState(asked.blocks, made.delta, damping)

    def describe_blocks(self, params: Params) -> dict[str, str]:
        """The name of the block of each array of parameters, by path; traced, not computed.

        "Kronecker" in a name means a dense layer; "ScaleAndShift" means a block made from the
        scores of the array. "Naive" would mean that kfac-jax did not recognise the array.
        """
        return name_blocks(make_curvature(self.log_psi, params, self._any_walkers(params)), params)

    def _any_walkers(self, params: Params) -> jax.ShapeDtypeStruct:
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return jax.ShapeDtypeStruct((2, self.n_electrons, 3), dtype)

    def _precondition(
        self, params: Params, before: Any, batch: Batch, gradient: Params, damping: Array
    ) -> tuple[Any, Params]:
        """The blocks after this batch, from the blocks `before`, and (F + l + λ)⁻¹ g with them."""
        r, step = batch.r, batch.step
        curvature = make_curvature(self.log_psi, params, r)
        weight = self.l2 + damping
        state = curvature.State(synced=jnp.array(False), blocks_states=before)
        state = curvature.update_curvature_matrix_estimate(
            state,
            ema_old=self.curvature_decay,
            ema_new=1.0,
            identity_weight=weight,
            batch_size=r.shape[0],
            rng=device_key(stream_key(self.seed, self.stream), step),
            func_args=(params, r),
            estimation_mode=self.estimation_mode,
            pmap_axis_name=devices.AXIS,
        )
        state = curvature.sync(state, devices.AXIS)
        is_kept = self.inverse_period > 1
        if is_kept:
            state = jax.lax.cond(
                step % self.inverse_period == 0,
                lambda state: self._invert(curvature, state, weight),
                lambda state: state,
                state,
            )
        natural = curvature.multiply_inverse(
            state,
            gradient,
            identity_weight=weight,
            exact_power=self.is_inverse_exact,
            use_cached=is_kept,
            pmap_axis_name=devices.AXIS,
        )
        return state.blocks_states, natural

    def _invert(self, curvature: Any, state: Any, weight: Array) -> Any:
        return curvature.update_cache(
            state,
            identity_weight=weight,
            exact_powers=-1 if self.is_inverse_exact else None,
            approx_powers=None if self.is_inverse_exact else -1,
            eigenvalues=False,
            pmap_axis_name=devices.AXIS,
        )
