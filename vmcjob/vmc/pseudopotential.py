"""The terms of effective core potentials: a local and a non-local part, for one walker."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from vmcjob.vmc.contracts import Nuclei, Params, SignedWaveFunction
from vmcjob.vmc.nucleus import Core, Nucleus, Radial, evaluate
from vmcjob.vmc.quadrature import legendre, quadrature, random_rotation


@dataclass(frozen=True)
class LocalPotential:
    """Σ_{iI} [ V_loc,I(d) − Z_I/d ] with d = |r_i − R_I|, over nuclei with a core.

    Potentials that are finite at the nucleus contain Z exp(−α d²)/d. Both singular terms are one
    expression here, so that no digits are lost where an electron is near the nucleus.
    """

    species: tuple[Nucleus, ...]

    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, ""]:
        """V in hartree of one walker."""
        total = jnp.zeros((), r.dtype)
        for number, one in enumerate(self.species):
            if one.core is None:
                continue
            d = jnp.linalg.norm(r - nuclei.positions[number], axis=-1)
            d = jnp.maximum(d, jnp.finfo(d.dtype).tiny)
            singular = [term for term in one.core.local if term.power == 1]
            rest = tuple(term for term in one.core.local if term.power != 1)
            for _, exponent, coefficient in singular:
                total += jnp.sum(coefficient * jnp.expm1(-exponent * d**2) / d)
            left = sum(term.coefficient for term in singular) - one.charge
            if abs(left) > 1e-9:  # e: less is rounding of the table
                total += jnp.sum(left / d)
            total += jnp.sum(evaluate(rest, d))
        return total


@dataclass(frozen=True)
class NonLocalPotential:
    """Σ_{iI} Σ_l (2l + 1) V_l(d) Σ_q w_q P_l(n_q·n) ψ(…, R_I + d n_q, …)/ψ(r); a `Term`.

    d = |r_i − R_I| and n = (r_i − R_I)/d. The quadrature of each pair of electron and nucleus has
    a random rotation of its own, so the mean over rotations has no error of the quadrature.

    Pairs in range are treated one after the other. A batch takes as many turns as its walker with
    most pairs in range, and no pair is left out. Only values of ψ are needed, no derivatives.
    """

    species: tuple[Nucleus, ...]
    n_points: int

    def __call__(
        self,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
        key: Array,
    ) -> Float[Array, ""]:
        """See `Term`."""
        cores = {i: one.core for i, one in enumerate(self.species) if one.core}
        cores = {i: core for i, core in cores.items() if core.channels}
        centres = nuclei.positions[np.array(list(cores))]
        away = r[:, None] - centres
        distances = jnp.linalg.norm(away, axis=-1)
        distances = jnp.maximum(distances, jnp.finfo(r.dtype).tiny)
        strengths = _strengths(list(cores.values()), distances)
        l_most = strengths.shape[-1] - 1
        here = psi(params, r, nuclei)

        def of_pair(pair: Array) -> Array:
            electron, core = pair // len(cores), pair % len(cores)
            rotation = random_rotation(jax.random.fold_in(key, pair), r.dtype)
            points, weights = (jnp.asarray(x, r.dtype) for x in quadrature(self.n_points))
            directions = points @ rotation.T
            d = distances[electron, core]
            goals = centres[core] + d * directions
            is_moved = (jnp.arange(len(r)) == electron)[:, None]
            there = jax.vmap(lambda goal: psi(params, jnp.where(is_moved, goal, r), nuclei))(goals)
            ratios = there.phase * here.phase * jnp.exp(there.log_abs - here.log_abs)
            cosines = directions @ (away[electron, core] / d)
            angular = jnp.stack([weights @ (p * ratios) for p in legendre(l_most, cosines)])
            return strengths[electron, core] @ angular

        reach = jnp.asarray([core.reach for core in cores.values()], r.dtype)
        return _sum_where((distances < reach).ravel(), of_pair, r.dtype)


def _strengths(
    cores: list[Core], distances: Float[Array, "elec core"]
) -> Float[Array, "elec core l"]:
    """(2l + 1) V_l of each core at each electron, zero for an l that the core does not have."""
    found, n_most = [], max(len(core.channels) for core in cores)
    for number, core in enumerate(cores):
        d = distances[:, number]
        channels: list[Radial] = [*core.channels, *[()] * (n_most - len(core.channels))]
        own = [(2 * i + 1) * evaluate(channel, d) for i, channel in enumerate(channels)]
        found.append(jnp.stack(own, axis=-1))
    return jnp.stack(found, axis=1)


def _sum_where(
    wanted: Bool[Array, " number"], of_one: Callable[[Array], Array], dtype: jnp.dtype
) -> Float[Array, ""]:
    """Σ of a function over the wanted numbers, in their order; the others are not evaluated."""
    order = jnp.argsort(~wanted, stable=True)
    n_wanted = jnp.sum(wanted)

    def add(state: tuple[Array, Array]) -> tuple[Array, Array]:
        turn, total = state
        return turn + 1, total + of_one(order[turn])

    start = jnp.zeros_like(n_wanted), jnp.zeros((), dtype)
    return jax.lax.while_loop(lambda state: state[0] < n_wanted, add, start)[1]
