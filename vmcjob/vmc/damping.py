"""Damping that follows how far the steps can be trusted, by the rule of Levenberg and Marquardt.

K-FAC's g is the gradient of L = ½ E + ½ l ‖θ‖², and with A = F + l + λ its step, without momentum,
is −η A⁻¹ g = −η d: the minimum of the quadratic model

    M(δ) = gᵀδ + δᵀ A δ / 2η,    M(−s d) = −s (1 − s / 2η) gᵀd,

or, where the norm constraint allows s < η only, a point on the way there. Every T steps,

    ρ = (L(θ − s d) − L(θ)) / M(−s d),    λ ← λ ω^T if ρ > ¾,  λ / ω^T if ρ < ¼

(arXiv:1503.05671, section 6.5, and kfac-jax, both for η = 1; the latter leaves λ out of A). There F
approximates the Hessian of L. In VMC it does not: A / η is the Hessian that a step of length η
takes for granted, and ρ tells how far that is right along d. Where L bends less, ρ goes up to 2,
and λ falls: such steps need no damping, and how long they are is for η to say.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, LocalEnergies, LogPsi, Params
from vmcjob.vmc.energy import Clipping
from vmcjob.vmc.scores import Vector

TRUSTED, DISTRUSTED = 0.75, 0.25  # ρ beyond which λ falls, or rises; as in both sources


class Trial(NamedTuple):
    """A step to be judged by the walkers that it was made from."""

    params: Params  # θ
    delta: Vector  # −s d
    batch: Batch  # at θ
    predicted: Array  # −M(−s d), hartree, not negative


@dataclass(frozen=True)
class Adaptation:
    """Levenberg–Marquardt damping.

    Args:
        log_psi: one walker's log|ψ|.
        local_energies: of a batch, under any parameters.
        clipping: of local energies, as for the gradient.
        initial, minimum, maximum: of λ.
        period: T, steps between two judgements, each of which costs the local energies of a batch.
        decay: ω, between 0 and 1.
        l2: l.
    """

    log_psi: LogPsi
    local_energies: LocalEnergies
    clipping: Clipping
    initial: float
    minimum: float
    maximum: float
    period: int
    decay: float
    l2: float

    def after(self, damping: Array, trial: Trial) -> Array:
        """λ of the step after that of the trial; inside pmap."""
        is_due = (trial.batch.step + 1) % self.period == 0
        return jax.lax.cond(is_due, self._judged, lambda damping, _: damping, damping, trial)

    def _judged(self, damping: Array, trial: Trial) -> Array:
        actual = self.reduction(trial)
        factor = self.decay**self.period
        # Not as a ratio: no gradient is no reason to change, and what is not finite was a bad step.
        is_good = actual > TRUSTED * trial.predicted
        is_bad = ~(actual >= DISTRUSTED * trial.predicted)
        new = damping * jnp.where(is_good, factor, jnp.where(is_bad, 1.0 / factor, 1.0))
        return jnp.clip(new, self.minimum, self.maximum).astype(damping.dtype)

    def reduction(self, trial: Trial) -> Float[Array, ""]:
        """L(θ) − L(θ + δ), in hartree, from the walkers at θ alone; inside pmap.

        With the weights w = |ψ(θ + δ) / ψ(θ)|² of the walkers,

            E(θ + δ) = Σ w E_loc(θ + δ) / Σ w.

        Most of their noise both energies share. What δ has learnt of it counts as a reduction, as
        in every judgement by the batch that a step was made from.
        """
        flat, unravel = ravel_pytree(trial.params)
        moved, batch = unravel(flat + trial.delta), trial.batch
        e_loc = self.local_energies(moved, batch.r)
        clipped, _ = self.clipping.apply(e_loc)
        batch_log_psi = jax.vmap(self.log_psi, (None, 0))
        log_ratio = batch_log_psi(moved, batch.r) - batch.log_abs
        weight = jnp.exp(2.0 * log_ratio)
        # Without the bulk of the energy, of which the difference would keep the rounding only.
        bulk = devices.mean(jnp.mean(batch.e_loc))
        before = devices.mean(jnp.mean(batch.e_loc - bulk))
        after = devices.mean(jnp.mean(weight * (clipped - bulk))) / devices.mean(jnp.mean(weight))
        penalty = 0.5 * self.l2 * jnp.vdot(2.0 * flat + trial.delta, trial.delta)
        return 0.5 * (before - after) - penalty
