"""Limit of an update: the walkers before the update must still represent |ψ|² after it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, LogPsi, Params, Trust

MAX_HALVINGS = 6
"""After so many halvings, an update of sensible size has no effect, and is not made."""


def effective_sample_size(log_ratio: Float[Array, " walker"]) -> Float[Array, ""]:
    """(Σ w)² / (N Σ w²) of all N walkers with w = |ψ_new/ψ_old|², from log|ψ_new/ψ_old|; in pmap.

    The fraction of walkers that a mean over |ψ_new|² effectively uses (Kish 1965).
    """
    largest = devices.largest(jnp.max(log_ratio))
    weight = jnp.exp(2.0 * (log_ratio - largest))
    return devices.mean(jnp.mean(weight)) ** 2 / devices.mean(jnp.mean(weight**2))


class _Tried(NamedTuple):
    """A part of the update, and the effective sample size after it."""

    halvings: Array  # -1 before the first try
    params: Float[Array, " param"]
    ess: Float[Array, ""]


def shortened(
    log_psi: LogPsi,
    old: Params,
    new: Float[Array, " param"],
    batch: Batch,
    least: float,
) -> tuple[Params, Trust]:
    """The flat parameters `new`, or a point on the way there with effective sample size `least`.

    The update is halved as often as needed, at most MAX_HALVINGS times; then it is not made at all.
    Inside pmap; costs a forward pass, and one for each halving.
    """
    flat, unravel = ravel_pytree(old)
    delta = new - flat
    batch_log_psi = jax.vmap(log_psi, (None, 0))

    def part(halvings: Array) -> Array:
        return jnp.where(halvings > MAX_HALVINGS, 0.0, 0.5**halvings).astype(flat.dtype)

    def one_more(tried: _Tried) -> _Tried:
        halvings = tried.halvings + 1
        moved = jnp.where(halvings == 0, new, flat + part(halvings) * delta)
        log_abs = batch_log_psi(unravel(moved), batch.r)
        return _Tried(halvings, moved, effective_sample_size(log_abs - batch.log_abs))

    # NaN compares false and ends the loop; the loop's caller then refuses the step.
    end = jax.lax.while_loop(
        lambda tried: (tried.ess < least) & (tried.halvings <= MAX_HALVINGS),
        one_more,
        _Tried(jnp.asarray(-1, jnp.int32), new, jnp.asarray(-jnp.inf, flat.dtype)),
    )
    return unravel(end.params), Trust(end.ess, part(end.halvings))
