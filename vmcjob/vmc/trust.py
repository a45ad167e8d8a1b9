"""How far an update may go before the walkers that it was made from cease to stand for |ψ|²."""

from typing import NamedTuple

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
    largest = devices.largest(jnp.max(log_ratio))
    weight = jnp.exp(2.0 * (log_ratio - largest))
    return devices.mean(jnp.mean(weight)) ** 2 / devices.mean(jnp.mean(weight**2))


class _Tried(NamedTuple):
    """A part of the update, and how much of the walkers it leaves."""

    halvings: Array  # -1 before any is tried
    params: Float[Array, " param"]
    ess: Float[Array, ""]


def shortened(
    log_psi: LogPsi,
    old: Params,
    new: Float[Array, " param"],
    batch: Batch,
    least: float,
) -> tuple[Params, Trust]:
    """The parameters `new`, flat, or some on the way there: of `least` effective sample size.

    The update is halved as often as needed, MAX_HALVINGS times; then it is not made at all. Inside
    pmap; costs a forward pass, and one for every halving.
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

    # What is not a number is not too small either: the step is then refused as a whole, outside.
    end = jax.lax.while_loop(
        lambda tried: (tried.ess < least) & (tried.halvings <= MAX_HALVINGS),
        one_more,
        _Tried(jnp.asarray(-1, jnp.int32), new, jnp.asarray(-jnp.inf, flat.dtype)),
    )
    return unravel(end.params), Trust(end.ess, part(end.halvings))
