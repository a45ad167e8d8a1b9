"""Traits of the evaluated state: its total spin, and how far out its outermost electron is.

Both are measured in every evaluation, on some walkers of every tenth step, at a small cost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LocalEnergies, Nuclei, Params, SignedWaveFunction
from vmcjob.vmc.wavefunction import ratio

EVERY: Final = 10
"""Steps of evaluation from one measurement to the next."""
MAX_COST: Final = 0.015
"""Part of an evaluation's values of ψ that S² may add."""

Traits = dict[str, Array]
"""By name: "s2", S² in units of ħ², and "outermost", bohr; NaN where they are not measured."""

Ratios = Callable[[Float[Array, "some elec 3"]], Float[Array, " some"]]
"""ψ(r′) / ψ(r) for other positions r′ of the electrons of one walker."""


def squared_spin(ratios: Ratios, r: Float[Array, "elec 3"], n_up: int) -> Float[Array, ""]:
    """S² of one walker, from exchanges of two electrons of unlike spins.

    With n↑ and n↓ electrons, s = (n↑ − n↓) / 2, and P_ij, which exchanges two positions,

        S² = s (s + 1) + n↓ − Σ_{i up, j down} ψ(P_ij r) / ψ(r).

    Costs n↑ n↓ values of ψ.
    """
    n_electrons = r.shape[0]
    n_down = n_electrons - n_up
    spin = 0.5 * (n_up - n_down)
    pure = spin * (spin + 1.0) + n_down
    if n_up == 0 or n_down == 0:
        return r[0, 0] * 0.0 + pure
    orders = np.tile(np.arange(n_electrons), (n_up * n_down, 1))
    pairs = [(i, j) for i in range(n_up) for j in range(n_up, n_electrons)]
    for order, (i, j) in zip(orders, pairs, strict=True):
        order[[i, j]] = j, i
    return pure - ratios(r[orders]).sum()


def make_squared_spins(
    psi: SignedWaveFunction, nuclei: Nuclei, n_up: int, chunk_divisor: int = 1
) -> LocalEnergies:
    """S² of each walker of a batch, as a function of parameters and walkers."""

    def squared_spins(params: Params, r: Float[Array, "walker elec 3"]) -> Float[Array, " walker"]:
        def of_one(r: Array) -> Array:
            def ratios(others: Array) -> Array:
                return jax.vmap(lambda other: ratio(psi, params, other, r, nuclei))(others)

            return squared_spin(ratios, r, n_up)

        return fwdlap.over_walkers(of_one, chunk_divisor=chunk_divisor)(r)

    return squared_spins


def n_measured(n_walkers: int, n_electrons: int, n_up: int, n_moves: int) -> int:
    """How many of a device's walkers are measured at a time, at least one.

    A step of evaluation costs about one value of ψ for each move, and one for each electron in the
    local energy.
    """
    n_values = n_up * (n_electrons - n_up) + 1
    n_affordable = MAX_COST * EVERY * (n_moves + n_electrons) * n_walkers / n_values
    return max(1, min(n_walkers, int(n_affordable)))


@dataclass(frozen=True)
class TraitsOf:
    """Measures the traits of a wave function; for use inside pmap.

    Args:
        psi, nuclei: the wave function and where its nuclei are.
        n_up: electrons of spin up, the first of every walker; None where that is not known.
        n_moves: of a walker in a step of evaluation.
        chunk_divisor: takes fewer walkers at a time.
    """

    psi: SignedWaveFunction
    nuclei: Nuclei
    n_up: int | None
    n_moves: int
    chunk_divisor: int = 1

    def __call__(self, params: Params, r: Float[Array, "walker elec 3"], step: Array) -> Traits:
        """Means over walkers in a step of evaluation, counted from 0; NaN unless they are due.

        The walkers take turns, so that all of them are asked in a long evaluation.
        """

        def measured(params: Params, r: Array) -> Traits:
            return {"s2": self._mean_spin(params, r, step), "outermost": self._outermost(r)}

        def nothing(params: Params, r: Array) -> Traits:
            nan = jnp.full((), jnp.nan, r.dtype)
            return {"s2": nan, "outermost": nan}

        is_due = (step + 1) % EVERY == 0
        return devices.mean(jax.lax.cond(is_due, measured, nothing, params, r))

    def _mean_spin(self, params: Params, r: Array, step: Array) -> Array:
        """Mean S² of this device's walkers whose turn it is; NaN where the spin is known anyway."""
        n_walkers, n_electrons, _ = r.shape
        if self.n_up is None or self.n_up in (0, n_electrons):
            return jnp.full((), jnp.nan, r.dtype)
        n = n_measured(n_walkers, n_electrons, self.n_up, self.n_moves)
        chosen = (step // EVERY * n + jnp.arange(n)) % n_walkers
        squared_spins = make_squared_spins(self.psi, self.nuclei, self.n_up, self.chunk_divisor)
        return jnp.mean(squared_spins(params, r[chosen]))

    def _outermost(self, r: Array) -> Array:
        """Mean over walkers of the largest distance of an electron from its nearest nucleus."""
        if not len(self.nuclei.positions):
            return jnp.full((), jnp.nan, r.dtype)
        apart = r[:, :, None, :] - self.nuclei.positions
        return jnp.mean(jnp.max(jnp.min(jnp.linalg.norm(apart, axis=-1), axis=-1), axis=-1))
