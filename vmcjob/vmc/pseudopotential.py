"""The terms of effective core potentials: a local and a non-local part, for one walker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from vmcjob.vmc.contracts import Nuclei, Params, Psi, SignedWaveFunction
from vmcjob.vmc.nucleus import Core, Nucleus, Radial, evaluate
from vmcjob.vmc.quadrature import legendre, quadrature, random_rotation

BLOCKS_PER_PAIR: Final = 2
"""Blocks that hold one pair of each walker. The last block of a batch is full only in part."""


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


class Pair(NamedTuple):
    """An electron in range of a core, and a quadrature on the sphere around the core."""

    walker: Float[Array, "elec 3"]  # all electrons
    here: Psi  # ψ of the walker
    electron: Int[Array, ""]  # its number
    core: Int[Array, ""]  # its number among the cores that have a non-local part
    nucleus: Int[Array, ""]  # its number among all nuclei
    centre: Float[Array, "3"]  # the nucleus, bohr
    directions: Float[Array, "point 3"]  # of length 1
    weights: Float[Array, " point"]

    @property
    def apart(self) -> Float[Array, "3"]:
        """From the nucleus to the electron, bohr."""
        return self.walker[self.electron] - self.centre

    @property
    def distance(self) -> Float[Array, ""]:
        """Distance of electron and nucleus, bohr; not zero."""
        d = jnp.linalg.norm(self.apart)
        return jnp.maximum(d, jnp.finfo(d.dtype).tiny)

    @property
    def points(self) -> Float[Array, "point 3"]:
        """The places of the electron in the quadrature."""
        return self.centre + self.distance * self.directions

    def moved(self, place: Float[Array, "3"]) -> Float[Array, "elec 3"]:
        """The walker with the electron at another place."""
        is_moved = (jnp.arange(len(self.walker)) == self.electron)[:, None]
        return jnp.where(is_moved, place, self.walker)

    def ratios(self, there: Psi) -> Float[Array, " point"]:
        """ψ of moved walkers over ψ of the walker, sign and all."""
        signs = there.phase * self.here.phase
        return signs * jnp.exp(there.log_abs - self.here.log_abs)


OfPair = Callable[[Pair, Params, Nuclei], Array]


@dataclass(frozen=True)
class NonLocalPotential:
    """Σ_{iI} Σ_l (2l + 1) V_l(d) Σ_q w_q P_l(n_q·n) ψ(…, R_I + d n_q, …)/ψ(r); a `Term`.

    d = |r_i − R_I| and n = (r_i − R_I)/d. The quadrature of each pair of electron and nucleus has
    a random rotation of its own, so the mean over rotations has no error of the quadrature.

    Pairs out of range are not evaluated. The pairs in range of a batch of walkers are treated in
    blocks, and no pair is left out. Only values of ψ are needed, no derivatives.
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

        def energy(pair: Pair, params: Params, nuclei: Nuclei) -> Array:
            moved = jax.vmap(pair.moved)(pair.points)
            ratios = pair.ratios(jax.vmap(lambda r: psi(params, r, nuclei))(moved))
            strengths = self._strengths(pair.core, pair.distance)
            cosines = pair.directions @ (pair.apart / pair.distance)
            angular = [pair.weights @ (p * ratios) for p in legendre(len(strengths) - 1, cosines)]
            return strengths @ jnp.stack(angular)

        return self.sum_over_pairs(energy, psi, params, r, nuclei, key)

    def kernel(self, pair: Pair, apart: Float[Array, "3"]) -> Float[Array, " point"]:
        """w_q Σ_l (2l + 1) V_l P_l(n_q·n), with the electron at another place from the nucleus."""
        d = jnp.linalg.norm(apart)
        strengths = self._strengths(pair.core, d)
        angular = legendre(len(strengths) - 1, pair.directions @ (apart / d))
        return pair.weights * (strengths @ jnp.stack(angular))

    def sum_over_pairs(
        self,
        of_pair: OfPair,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
        key: Array,
    ) -> Array:
        """The sum of a function over all pairs of an electron and a core in range, of one walker.

        The function has to take parameters and nuclei as arguments.
        """

        def alone(params: Params, nuclei: Nuclei, r: Array, key: Array) -> Array:
            return self._batch(of_pair, psi, params, nuclei, r[None], key[None])[0]

        # Under vmap over walkers, the pairs of the whole batch are treated together. A loop for one
        # walker each would take as many turns as the walker with most pairs in range.
        of_walker = jax.custom_batching.custom_vmap(alone)

        @of_walker.def_vmap
        def _(n: int, is_batched: Any, *arguments: Any) -> tuple[Array, bool]:  # Any: trees
            del n
            of_shared, of_own = is_batched[:2], is_batched[2:]
            if any(jax.tree.leaves(of_shared)) or not all(of_own):
                axes = jax.tree.map(lambda is_one: 0 if is_one else None, tuple(is_batched))
                return jax.vmap(alone, axes)(*arguments), True
            return self._batch(of_pair, psi, *arguments), True

        return of_walker(params, nuclei, r, key)

    def _batch(
        self,
        of_pair: OfPair,
        psi: SignedWaveFunction,
        params: Params,
        nuclei: Nuclei,
        r: Float[Array, "walker elec 3"],
        keys: Array,
    ) -> Array:
        """The sum of each walker of a batch; the first axis runs over walkers."""
        numbers = np.array(list(self._cores))
        centres = nuclei.positions[numbers]
        reach = jnp.asarray([core.reach for core in self._cores.values()], r.dtype)
        distances = jnp.linalg.norm(r[:, :, None] - centres, axis=-1)
        n_pairs = r.shape[1] * len(numbers)
        psi_here = jax.vmap(lambda r: psi(params, r, nuclei))(r)
        points, weights = (jnp.asarray(x, r.dtype) for x in quadrature(self.n_points))

        def of_one(number: Array) -> Array:
            walker, pair = number // n_pairs, number % n_pairs
            electron, core = pair // len(numbers), pair % len(numbers)
            rotation = random_rotation(jax.random.fold_in(keys[walker], pair), r.dtype)
            here = jax.tree.map(lambda x: x[walker], psi_here)
            of_nucleus = core, jnp.asarray(numbers)[core], centres[core]
            found = Pair(r[walker], here, electron, *of_nucleus, points @ rotation.T, weights)
            return of_pair(found, params, nuclei)

        return _sums_where((distances < reach).reshape(len(r), n_pairs), of_one)

    @property
    def _cores(self) -> dict[int, Core]:
        """The cores that have a non-local part, by the numbers of their nuclei."""
        cores = {i: one.core for i, one in enumerate(self.species) if one.core}
        return {i: core for i, core in cores.items() if core.channels}

    def _strengths(self, core: Array, d: Float[Array, ""]) -> Float[Array, " l"]:
        """(2l + 1) V_l of the core with this number."""
        return _strengths(list(self._cores.values()), core, d)


def _strengths(cores: list[Core], number: Array, d: Float[Array, ""]) -> Float[Array, " l"]:
    """(2l + 1) V_l of the core with this number, zero for an l that the core does not have."""
    n_most = max(len(core.channels) for core in cores)
    found = []
    for core in cores:
        channels: list[Radial] = [*core.channels, *[()] * (n_most - len(core.channels))]
        own = [(2 * i + 1) * evaluate(channel, d) for i, channel in enumerate(channels)]
        found.append(jnp.stack(own))
    return jnp.stack(found)[number]


def _sums_where(wanted: Bool[Array, "walker pair"], of_one: Callable[[Array], Array]) -> Array:
    """For each walker, the first axis, Σ of a function over its wanted pairs, in their order.

    The function takes the number of a pair among those of all walkers. Wanted pairs are evaluated
    in blocks of about half a pair for each walker, and as many blocks as that takes.
    """
    n_walkers = len(wanted)
    size = -(-n_walkers // BLOCKS_PER_PAIR)
    nothing = wanted.size + np.arange(-wanted.size % size)  # so that all blocks are full
    numbers = jnp.append(jnp.argsort(~wanted.ravel(), stable=True), nothing)
    n_wanted = jnp.sum(wanted)

    def fill(state: tuple[Array, Array]) -> tuple[Array, Array]:
        first, found = state
        block = jax.lax.dynamic_slice(numbers, (first,), (size,))
        values = jax.vmap(of_one)(jnp.minimum(block, wanted.size - 1))
        return first + size, found.at[block].set(values, mode="drop", unique_indices=True)

    one = jax.eval_shape(of_one, numbers[0])
    start = jnp.zeros_like(n_wanted), jnp.zeros((wanted.size, *one.shape), one.dtype)
    _, found = jax.lax.while_loop(lambda state: state[0] < n_wanted, fill, start)
    found = jnp.where(wanted.reshape(-1, *(1,) * one.ndim), found, 0.0)
    return jnp.sum(found.reshape(*wanted.shape, *one.shape), axis=1)
