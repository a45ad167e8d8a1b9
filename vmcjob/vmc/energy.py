"""Local energies of a batch, their moments, clipping and centring."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LocalEnergies, Nuclei, Params, SignedWaveFunction
from vmcjob.vmc.hamiltonian import Hamiltonian
from vmcjob.vmc.streams import Share, walker_key

TALLY_BOUND: Final = 5.0
"""In mean absolute deviations: one step near a node shall not set a walker apart."""


class EnergyMoments(NamedTuple):
    """Mean (hartree) and variance (hartree²) of the local energy over all walkers."""

    energy: Float[Array, ""]
    variance: Float[Array, ""]


def make_local_energies(
    hamiltonian: Hamiltonian,
    psi: SignedWaveFunction,
    nuclei: Nuclei,
    key: Array,
    chunk_divisor: int = 1,
) -> LocalEnergies:
    """Local energies of a batch as a function of parameters and walkers; for use in pmap.

    Walkers are treated in chunks that fit the memory; `chunk_divisor` makes the chunks smaller.
    Each walker has its own key, derived from the step's `key`.
    """

    def local_energies(params: Params, r: Float[Array, "walker elec 3"]) -> Float[Array, " walker"]:
        def of_one(r: Float[Array, "elec 3"], walker: Array) -> Float[Array, ""]:
            own = walker_key(key, Share.HAMILTONIAN, walker)
            return hamiltonian.local_energy(psi, params, r, nuclei, own).total

        batch = fwdlap.over_walkers(of_one, chunk_divisor=chunk_divisor)
        return batch(r, devices.own_walkers(len(r)))

    return local_energies


def moments(e_loc: Float[Array, " walker"]) -> EnergyMoments:
    """Unclipped energy and variance over all devices; inside pmap.

    Deviations are squared after centring. A difference of two large means would lose float32's
    digits just when a good wave function makes the variance small.
    """
    energy = devices.mean(jnp.mean(e_loc))
    return EnergyMoments(energy, devices.mean(jnp.mean((e_loc - energy) ** 2)))


def count(
    tally: Float[Array, "walker 3"], e_loc: Float[Array, " walker"], is_first: Array
) -> Float[Array, "walker 3"]:
    """The tally of an evaluation after one more step; inside pmap.

    For each walker: the steps, the sum of its local energy less the mean over all walkers, and the
    same sum with every term held within `TALLY_BOUND` mean absolute deviations. Hartree.
    """
    away = e_loc - devices.mean(jnp.mean(e_loc))
    limit = TALLY_BOUND * devices.mean(jnp.mean(jnp.abs(away)))
    step = jnp.stack([jnp.ones_like(away), away, jnp.clip(away, -limit, limit)], axis=-1)
    return jnp.where(is_first, 0.0, tally) + step


@dataclass(frozen=True)
class Clipping:
    """Clip local energies to `width` mean absolute deviations around their centre.

    For gradients only (arXiv:1909.02487, appendix). Around the median, a few walkers near a node do
    not move the window.
    """

    width: float
    centre: Literal["median", "mean"]

    def apply(
        self, e_loc: Float[Array, " walker"]
    ) -> tuple[Float[Array, " walker"], Float[Array, ""]]:
        """The clipped batch, and the number of changed walkers on all devices; in pmap."""
        if self.centre == "median":
            centre = jnp.median(devices.concatenate(e_loc))
        else:
            centre = devices.mean(jnp.mean(e_loc))
        deviation = devices.mean(jnp.mean(jnp.abs(e_loc - centre)))
        low, high = centre - self.width * deviation, centre + self.width * deviation
        n_clipped = devices.total(jnp.sum((e_loc < low) | (e_loc > high), dtype=e_loc.dtype))
        return jnp.clip(e_loc, low, high), n_clipped


def centred(x: Float[Array, " walker"]) -> Float[Array, " walker"]:
    """Deviations from the mean over all devices; inside pmap.

    Centred twice: the first pass leaves the rounding error of a large mean. This error would count
    in full where deviations are weights for numbers with a large mean.
    """
    once = x - devices.mean(jnp.mean(x))
    return once - devices.mean(jnp.mean(once))
