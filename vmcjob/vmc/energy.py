"""From local energies of a batch to energy, variance and the gradient's weights."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LocalEnergies, Nuclei, Params, SignedWaveFunction
from vmcjob.vmc.hamiltonian import Hamiltonian
from vmcjob.vmc.streams import Share, walker_key


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
    """Local energies of a batch as a function of its parameters and walkers; for use in pmap.

    As many walkers at a time as memory takes; should that be too many, a `chunk_divisor` makes them
    fewer. Each has its own share of the step's `key`.
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

    The variance is centred before it is squared: the difference of two large means would lose
    float32's digits exactly where a good wave function makes it small.
    """
    energy = devices.mean(jnp.mean(e_loc))
    return EnergyMoments(energy, devices.mean(jnp.mean((e_loc - energy) ** 2)))


@dataclass(frozen=True)
class Clipping:
    """Holds local energies within `width` mean absolute deviations of their centre.

    For gradients only (arXiv:1909.02487, appendix). About the median, a few walkers near a node do
    not move the window.
    """

    width: float
    centre: Literal["median", "mean"]

    def apply(
        self, e_loc: Float[Array, " walker"]
    ) -> tuple[Float[Array, " walker"], Float[Array, ""]]:
        """The clipped batch of this device; how many walkers of all devices changed; in pmap."""
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

    Centred twice: what rounding left of a large mean is gone only after the second pass, and would
    otherwise count in full wherever the deviations weight something that has a large mean itself.
    """
    once = x - devices.mean(jnp.mean(x))
    return once - devices.mean(jnp.mean(once))
