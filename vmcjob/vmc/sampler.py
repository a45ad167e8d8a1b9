"""Metropolis sampling of |ψ|² for a batch of walkers; the tuning of its width stands apart."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.contracts import ChainState, LogPsi, Nuclei, Params

# Robbins–Monro gain: a step that accepts 10 % too many moves widens them by 5 %.
WIDTH_GAIN = 0.5


SHARPNESS: Final = 4
"""Of the minimum in `distance_scale`: the higher, the more is the nearest nucleus the only one."""

Scale = Callable[[Float[Array, "elec 3"]], Float[Array, " elec"]]
"""How far electrons move, each by where it is, in units of the width."""

Jump = Callable[[Float[Array, "elec 3"], Array], tuple[Float[Array, "elec 3"], Float[Array, ""]]]
"""Where a walker may jump, by a key, and log q(r′→r)/q(r→r′)."""

_FIRST, _DISPLACEMENT, _JUMP = range(3)  # kinds of moves; the first one stays where it is


@dataclass(frozen=True)
class Moves:
    """How walkers are moved between two updates.

    Args:
        number: of displacements of all electrons.
        are_scaled: whether these are in proportion to an electron's distance from the nuclei.
        with_jump: whether, after them, one electron may jump to another nucleus.
    """

    number: int
    are_scaled: bool = False
    with_jump: bool = False


class Sampled(NamedTuple):
    """A batch of walkers after some moves, with log|ψ| and acceptance."""

    chain: ChainState
    log_abs: Float[Array, " walker"]  # log|ψ| at their places
    acceptance: Float[Array, ""]  # accepted part of the moves


class Drawn(NamedTuple):
    """What chance has to say in a move of a batch of walkers."""

    xi: Float[Array, "walker elec 3"]  # normal deviates
    threshold: Float[Array, " walker"]  # log of a uniform one
    key: Array  # for a jump


Carry = tuple[Array, Array, Array, Array | None]
"""Positions, log|ψ| there, accepted moves so far, ages."""
Move = tuple[Drawn, Array, Array]  # its chances, its width, its kind


def sample(
    log_psi: LogPsi,
    params: Params,
    key: Array,
    chain: ChainState,
    moves: Moves,
    nuclei: Nuclei,
) -> Sampled:
    """A batch of walkers after Metropolis moves.

    Every move displaces all electrons of a walker by normal deviates ξ of standard deviation
    `chain.width`, times `distance_scale` at their places if it is scaled. It is accepted with
    probability min(1, |ψ(r′)/ψ(r)|² q(r′→r)/q(r→r′)) (Hastings, 1970), where q, the density of
    proposals, is s⁻³ exp(−ξ²/2) for each electron, and of the way back s′⁻³ exp(−ξ²s²/2s′²). The
    width stays as it is, so |ψ|² is left invariant. Where |ψ(r)|² is zero or undefined, any
    |ψ(r′)|² is better. Of a jump see `jump_among`; the acceptance is that of displacements.
    """
    batch_log_psi = jax.vmap(log_psi, (None, 0))
    batch_scale = jax.vmap(distance_scale(nuclei)) if moves.are_scaled else None
    batch_jump = jax.vmap(jump_among(nuclei)) if moves.with_jump else None

    def move(carry: Carry, how: Move) -> tuple[Carry, None]:
        r, log_abs, n_accepted, age = carry
        drawn, width, kind = how
        r_new, log_back = _propose(r, width, drawn.xi, batch_scale)
        if batch_jump is not None:
            there, log_back_there = batch_jump(r, jax.random.split(drawn.key, len(r)))
            r_new = jnp.where(kind == _JUMP, there, r_new)
            log_back = jnp.where(kind == _JUMP, log_back_there, log_back)
        log_abs_new = batch_log_psi(params, r_new)
        is_likely = drawn.threshold < 2.0 * (log_abs_new - log_abs) + log_back
        # A broken proposal is refused; a walker that is lost takes the first one that is not.
        accept = jnp.isfinite(log_abs_new) & (is_likely | ~jnp.isfinite(log_abs))
        r = jnp.where(accept[:, None, None], r_new, r)
        log_abs = jnp.where(accept | (kind == _FIRST), log_abs_new, log_abs)
        counted = (kind == _DISPLACEMENT) * jnp.mean(accept, dtype=r.dtype)
        return (r, log_abs, n_accepted + counted, _aged(age, kind, accept)), None

    # Before all moves one of no width finds log|ψ| where the walkers are: a program with a single
    # copy of the wave function in it is compiled sooner.
    kinds = np.repeat([_FIRST, _DISPLACEMENT, _JUMP], [1, moves.number, moves.with_jump])
    keys = jnp.concatenate([key[None], jax.random.split(key, len(kinds) - 1)])
    drawn = jax.vmap(partial(_draw, chain.r))(keys)
    how = drawn, (kinds == _DISPLACEMENT) * chain.width, jnp.asarray(kinds)
    unknown, none = jnp.zeros(len(chain.r), chain.r.dtype), jnp.zeros((), chain.r.dtype)
    start = chain.r, unknown, none, chain.age
    (r, log_abs, n_accepted, age), _ = jax.lax.scan(move, start, how)
    return Sampled(chain._replace(r=r, age=age), log_abs, n_accepted / moves.number)


def _draw(r: Float[Array, "walker elec 3"], key: Array) -> Drawn:
    """Random numbers of one move of walkers like r."""
    key_move, key_accept = jax.random.split(key)
    xi = fwdlap.normal(key_move, r.shape, r.dtype)
    threshold = jnp.log(jax.random.uniform(key_accept, (len(r),), r.dtype))
    return Drawn(xi, threshold, key_move)


def _aged(age: Array | None, kind: Array, accept: Array) -> Array | None:
    """Ages after a move, if they are counted."""
    return None if age is None else jnp.where(kind == _FIRST, age, jnp.where(accept, 0, age + 1))


def _propose(
    r: Array, width: Array, xi: Array, scale: Callable[[Array], Array] | None
) -> tuple[Array, Array | float]:
    """Proposed positions, and log q(r′→r)/q(r→r′), the bias of the proposal."""
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
        closeness = jnp.sum(_closeness(nuclei, r), axis=-1)
        return jax.lax.rsqrt(jnp.sqrt(closeness))  # roots, for a power takes ten times as long

    return scale


def jump_among(nuclei: Nuclei) -> Jump:
    """One electron goes from a nucleus I to as far from another one, J, in the same direction.

    Between atoms so far apart that no displacement leads from one to the other, this does. The
    electron and J are any; I is chosen with probability p_I, in proportion to its closeness, which
    is d⁻ᵖ as in `distance_scale`. The way back is from J to I: q(r′→r)/q(r→r′) = p_J(r′)/p_I(r).
    """
    n_nuclei = len(nuclei.charges)

    def jump(r: Float[Array, "elec 3"], key: Array) -> tuple[Array, Array]:
        of_electron, of_origin, of_goal = jax.random.split(key, 3)
        moved = jax.random.randint(of_electron, (), 0, len(r))
        logits = jnp.log(_closeness(nuclei, r[moved]))
        origin = jax.random.categorical(of_origin, logits)
        goal = (origin + jax.random.randint(of_goal, (), 1, n_nuclei)) % n_nuclei
        there = r[moved] + nuclei.positions[goal] - nuclei.positions[origin]
        logits_there = jnp.log(_closeness(nuclei, there))
        back = jax.nn.log_softmax(logits_there)[goal] - jax.nn.log_softmax(logits)[origin]
        return r.at[moved].set(there), back

    return jump


def _closeness(nuclei: Nuclei, r: Float[Array, "*some 3"]) -> Float[Array, "*some nuc"]:
    distances = jnp.linalg.norm(r[..., None, :] - nuclei.positions, axis=-1)
    return (distances + 1.0 / nuclei.charges) ** -SHARPNESS


def tune_width(chain: ChainState, acceptance: Array, target: float) -> ChainState:
    """Nudge the width towards the target acceptance (Robbins and Monro, 1951).

    The chain is then no longer stationary, so this has no place in evaluation.
    """
    return chain._replace(width=chain.width * jnp.exp(WIDTH_GAIN * (acceptance - target)))
