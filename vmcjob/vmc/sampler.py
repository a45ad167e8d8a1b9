"""Metropolis sampling of |ψ|² for a batch of walkers; the tuning of its width stands apart."""

from collections.abc import Callable
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.contracts import ChainState, LogPsi, Nuclei, Params

# Robbins–Monro gain: a step that accepts 10 % too many moves widens them by 5 %.
WIDTH_GAIN = 0.5


SHARPNESS: Final = 4
"""Of the minimum in `distance_scale`: the higher, the more is the nearest nucleus the only one."""

Scale = Callable[[Float[Array, "elec 3"]], Float[Array, " elec"]]
"""How far electrons move, each by where it is, in units of the width."""


class Sampled(NamedTuple):
    """Where a batch of walkers is after some moves, and what is known of them there."""

    chain: ChainState
    log_abs: Float[Array, " walker"]  # log|ψ| at their places
    acceptance: Float[Array, ""]  # accepted part of the moves


Carry = tuple[Array, Array, Array]  # positions, log|ψ| there, accepted moves so far
Move = tuple[Array, Array, Array]  # its key, its width, and whether it is one


def sample(
    log_psi: LogPsi,
    params: Params,
    key: Array,
    chain: ChainState,
    n_moves: int,
    scale: Scale | None = None,
) -> Sampled:
    """A batch of walkers after `n_moves` Metropolis moves.

    Every move displaces all electrons of a walker by normal deviates ξ of standard deviation
    `chain.width`, times `scale` at the electron's place where there is one. It is accepted with
    probability min(1, |ψ(r′)/ψ(r)|² q(r′→r)/q(r→r′)) (Hastings, 1970), where q, the density of
    proposals, is s⁻³ exp(−ξ²/2) for each electron, and of the way back s′⁻³ exp(−ξ²s²/2s′²). The
    width stays as it is, so |ψ|² is left invariant. Where |ψ(r)|² is zero or undefined, any
    |ψ(r′)|² is better.
    """
    batch_log_psi = jax.vmap(log_psi, (None, 0))
    batch_scale = None if scale is None else jax.vmap(scale)

    def move(carry: Carry, how: Move) -> tuple[Carry, None]:
        r, log_abs, n_accepted = carry
        key, width, is_move = how
        key_move, key_accept = jax.random.split(key)
        xi = jax.random.normal(key_move, r.shape, r.dtype)
        r_new, log_back = _propose(r, width, xi, batch_scale)
        log_abs_new = batch_log_psi(params, r_new)
        threshold = jnp.log(jax.random.uniform(key_accept, log_abs.shape, r.dtype))
        is_likely = threshold < 2.0 * (log_abs_new - log_abs) + log_back
        # A broken proposal is refused; a walker that is lost takes the first one that is not.
        accept = jnp.isfinite(log_abs_new) & (is_likely | ~jnp.isfinite(log_abs))
        r = jnp.where(accept[:, None, None], r_new, r)
        log_abs = jnp.where(accept | ~is_move, log_abs_new, log_abs)
        return (r, log_abs, n_accepted + is_move * jnp.mean(accept, dtype=r.dtype)), None

    # Before all moves one of no width finds log|ψ| where the walkers are: a program with a single
    # copy of the wave function in it is compiled sooner.
    keys = jnp.concatenate([key[None], jax.random.split(key, n_moves)])
    is_move = jnp.arange(-1, n_moves) >= 0
    how = keys, is_move * chain.width, is_move
    start = chain.r, jnp.zeros(len(chain.r), chain.r.dtype), jnp.zeros((), chain.r.dtype)
    (r, log_abs, n_accepted), _ = jax.lax.scan(move, start, how)
    return Sampled(chain._replace(r=r), log_abs, n_accepted / n_moves)


def _propose(
    r: Array, width: Array, xi: Array, scale: Callable[[Array], Array] | None
) -> tuple[Array, Array | float]:
    """Where walkers may go, and log q(r′→r)/q(r→r′): how much likelier the way back is."""
    if scale is None:
        return r + width * xi, 0.0
    s = scale(r)
    r_new = r + width * s[..., None] * xi
    ratio = s / scale(r_new)
    halves = 0.5 * jnp.sum(xi**2, axis=-1) * (1.0 - ratio**2)
    return r_new, jnp.sum(3.0 * jnp.log(ratio) + halves, axis=-1)


def distance_scale(nuclei: Nuclei) -> Scale:
    """A smooth minimum over nuclei of distance + 1/Z: an electron moves in proportion to its shell.

    With one width for all, the innermost shell sets it, and valence electrons take tens of steps to
    forget where they were. `SHARPNESS` p: (Σ (d + 1/Z)⁻ᵖ)^(−1/p), in bohr.
    """

    def scale(r: Float[Array, "elec 3"]) -> Float[Array, " elec"]:
        distances = jnp.linalg.norm(r[:, None, :] - nuclei.positions, axis=-1)
        closeness = (distances + 1.0 / nuclei.charges) ** -SHARPNESS
        return jnp.sum(closeness, axis=-1) ** (-1.0 / SHARPNESS)

    return scale


def tune_width(chain: ChainState, acceptance: Array, target: float) -> ChainState:
    """Nudge the width towards the target acceptance (Robbins and Monro, 1951).

    The chain is then no longer stationary, so this has no place in evaluation.
    """
    return chain._replace(width=chain.width * jnp.exp(WIDTH_GAIN * (acceptance - target)))
