"""How far an update may go before the walkers that it was made from cease to stand for |ψ|²."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, LogPsi, Params, Trust

MAX_HALVINGS = 6
"""After so many an update of any sensible size does nothing; then none is made."""


def effective_sample_size(log_ratio: Float[Array, " walker"]) -> Float[Array, ""]:
    """(Σ w)² / (N Σ w²) of all N walkers with w = |ψ_new/ψ_old|², from log|ψ_new/ψ_old|; in pmap.

    The part of the walkers that a mean over |ψ_new|² could still be taken from (Kish 1965).
    """
    largest = jax.lax.pmax(jnp.max(log_ratio), devices.AXIS)
    weight = jnp.exp(2.0 * (log_ratio - largest))
    return devices.mean(jnp.mean(weight)) ** 2 / devices.mean(jnp.mean(weight**2))


def shortened(
    log_psi: LogPsi,
    old: Params,
    new: Params,
    batch: Batch,
    least: float,
) -> tuple[Params, Trust]:
    """The parameters `new`, or on the way there, so that the effective sample size is `least`.

    The update is halved as often as needed, MAX_HALVINGS times; then it is not made at all. Inside
    pmap; costs a forward pass, and one for every halving.
    """
    flat, unravel = ravel_pytree(old)
    whole = ravel_pytree(new)[0]
    delta = whole - flat
    batch_log_psi = jax.vmap(log_psi, (None, 0))

    def part(halvings: Array) -> Array:
        return jnp.where(halvings > MAX_HALVINGS, 0.0, 0.5**halvings).astype(flat.dtype)

    def moved(halvings: Array) -> Array:
        return jnp.where(halvings == 0, whole, flat + part(halvings) * delta)

    def one_more(tried: tuple[Array, Array]) -> tuple[Array, Array]:
        halvings = tried[0] + 1
        log_abs = batch_log_psi(unravel(moved(halvings)), batch.r)
        return halvings, effective_sample_size(log_abs - batch.log_abs)

    # What is not a number is not too small either: the step is then refused as a whole, outside.
    halvings, ess = jax.lax.while_loop(
        lambda tried: (tried[1] < least) & (tried[0] <= MAX_HALVINGS),
        one_more,
        (jnp.asarray(-1, jnp.int32), jnp.asarray(-jnp.inf, flat.dtype)),
    )
    return unravel(moved(halvings)), Trust(ess, part(halvings))
