"""From local energies of a batch to energy, variance and the gradient's weights."""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LocalEnergy, Params


class EnergyMoments(NamedTuple):
    """Mean (hartree) and variance (hartree²) of the local energy over all walkers."""

    energy: Float[Array, ""]
    variance: Float[Array, ""]


def local_energies(
    local_energy: LocalEnergy,
    params: Params,
    r: Float[Array, "walker elec 3"],
    chunk_divisor: int = 1,
) -> Float[Array, " walker"]:
    """Local energies of a batch, in hartree; as many walkers at a time as memory takes.

    Should that be too many, a `chunk_divisor` makes them fewer.
    """
    return fwdlap.over_walkers(partial(local_energy, params), chunk_divisor=chunk_divisor)(r)


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
