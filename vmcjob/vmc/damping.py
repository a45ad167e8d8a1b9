"""Damping adapted to the quality of the quadratic model, by the rule of Levenberg and Marquardt.

K-FAC's g is the gradient of L = ½ E + ½ l ‖θ‖². With A = F + l + λ, its step without momentum is −η
A⁻¹ g = −η d. This is the minimum of the quadratic model

    M(δ) = gᵀδ + δᵀ A δ / 2η,    M(−s d) = −s (1 − s / 2η) gᵀd,

or, if the norm constraint allows only s < η, a point on the way to the minimum. Every T steps,

    ρ = (L(θ − s d) − L(θ)) / M(−s d),    λ ← λ ω^T if ρ > ¾,  λ / ω^T if ρ < ¼

(arXiv:1503.05671, section 6.5, and kfac-jax, both for η = 1; kfac-jax leaves λ out of A). There F
approximates the Hessian of L. In VMC it does not: a step of length η takes A / η for the Hessian,
and ρ tells how well this holds along d. If L curves less, ρ rises up to 2, and λ falls. Such steps
need no damping; η decides their length.
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

# ρ above which λ falls, and below which λ rises; as in both sources
TRUSTED, DISTRUSTED = 0.75, 0.25


class Trial(NamedTuple):
    """A step, to be judged by the walkers that it was made from."""

    params: Params  # θ
    delta: Vector  # −s d
    batch: Batch  # at θ
    predicted: Array  # −M(−s d), hartree, not negative


@dataclass(frozen=True)
class Adaptation:
    """Levenberg–Marquardt damping.

    Args:
        log_psi: one walker's log|ψ|.
        local_energies: local energies of a batch for any parameters.
        clipping: clipping of local energies, as for the gradient.
        initial, minimum, maximum: values of λ.
        period: T, steps between two tests; each test costs the local energies of a batch.
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
        """λ of the step after the trial; inside pmap."""
        is_due = (trial.batch.step + 1) % self.period == 0
        return jax.lax.cond(is_due, self._judged, lambda damping, _: damping, damping, trial)

    def _judged(self, damping: Array, trial: Trial) -> Array:
        actual = self.reduction(trial)
        factor = self.decay**self.period
        # Not as a ratio: a gradient of zero changes nothing, and a result that is not finite is
        # bad.
        is_good = actual > TRUSTED * trial.predicted
        is_bad = ~(actual >= DISTRUSTED * trial.predicted)
        new = damping * jnp.where(is_good, factor, jnp.where(is_bad, 1.0 / factor, 1.0))
        return jnp.clip(new, self.minimum, self.maximum).astype(damping.dtype)

    def reduction(self, trial: Trial) -> Float[Array, ""]:
        """L(θ) − L(θ + δ), in hartree, from the walkers at θ alone; inside pmap.

        With the weights w = |ψ(θ + δ) / ψ(θ)|² of the walkers,

            E(θ + δ) = Σ w E_loc(θ + δ) / Σ w.

        Both energies share most of the walkers' noise. The noise that δ has fitted counts as a
        reduction, as in every test by the batch that a step was made from.
        """
        flat, unravel = ravel_pytree(trial.params)
        moved, batch = unravel(flat + trial.delta), trial.batch
        e_loc = self.local_energies(moved, batch.r)
        clipped, _ = self.clipping.apply(e_loc)
        batch_log_psi = jax.vmap(self.log_psi, (None, 0))
        log_ratio = batch_log_psi(moved, batch.r) - batch.log_abs
        weight = jnp.exp(2.0 * log_ratio)
        # Subtract the bulk of the energy first: the difference of large numbers would be mostly
        # rounding.
        bulk = devices.mean(jnp.mean(batch.e_loc))
        before = devices.mean(jnp.mean(batch.e_loc - bulk))
        after = devices.mean(jnp.mean(weight * (clipped - bulk))) / devices.mean(jnp.mean(weight))
        penalty = 0.5 * self.l2 * jnp.vdot(2.0 * flat + trial.delta, trial.delta)
        return 0.5 * (before - after) - penalty
