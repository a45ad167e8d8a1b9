"""Holes in orbitals: the potential of a core keeps valence electrons out of it."""

import math
from functools import cache
from typing import Final, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.ansatz.distances import SMOOTHING
from vmcjob.vmc.nucleus import Core, values
from vmcjob.vmc.system import System

NARROWEST: Final = 0.1
"""Bohr, smallest radius of a hole: half the radius of the smallest cores. A core that does not
repel s electrons has a hole of no depth and this radius."""
SPACING: Final = 0.02
"""Bohr, of the radial grid."""
POINTS: Final = 600
"""Of the grid: to 12 bohr, where its end does not matter inside a core."""


class Hole(NamedTuple):
    """The factor exp(−A exp(−κ s)) of orbitals, with the distance s of `nuclear_distances`."""

    nucleus: int  # its number
    depth: float  # A, at first
    rate: float  # κ, 1/bohr


class CoreHoles(nn.Module):
    """Π_I exp(−A_I exp(−κ_I s_I)) for each determinant and orbital, over nuclei with a core.

    A valence s orbital of sodium has A = 2.4: at the nucleus it is a tenth of its maximum. Of 10⁴
    electrons, four are where the hole is. So neither pretraining nor VMC teaches the hole to a
    network. Features that fit the orbital outside continue it through zero, and walkers in the
    core are behind a node, at local energies of +17 hartree.

    Inside a core the potential outweighs the energies of valence electrons. So its hole is nearly
    the same in all molecules. A is learned, since orbitals of other angular momenta have other
    holes.
    """

    holes: tuple[Hole, ...]
    determinants: int
    orbitals: int

    @nn.compact
    def __call__(self, d_en: Float[Array, "elec nuc"]) -> Float[Array, "elec det orb"]:
        """The factors from the electron–nucleus distances of one walker."""
        n_holes = len(self.holes)
        numbers, depths, rates = (np.array(column) for column in zip(*self.holes, strict=True))
        shape = (n_holes, self.determinants, self.orbitals)
        init = nn.initializers.constant(jnp.asarray(depths, d_en.dtype)[:, None, None])
        depth = self.param("depth", init, shape, d_en.dtype)
        near = fwdlap.elementwise(jnp.exp, -jnp.asarray(rates, d_en.dtype) * d_en[:, numbers])
        log = jnp.sum(-depth.reshape(n_holes, -1) * near[:, :, None], axis=1)
        return fwdlap.elementwise(jnp.exp, log).reshape(d_en.shape[0], *shape[1:])


def holes_of(system: System) -> tuple[Hole, ...]:
    """The holes of a system, one for each nucleus with a core."""
    species = enumerate(system.species)
    return tuple(Hole(i, *_shape(one.core, one.charge)) for i, one in species if one.core)


@cache
def _shape(core: Core, charge: int) -> tuple[float, float]:
    """A = log(φ_max / φ(0)), and κ: hole and φ reach the logarithm −A/e at the same distance.

    ψ of a run is made anew from its spec. So a change of this function changes the ψ of old runs.
    φ is the lowest s orbital of one electron around the core, by finite differences:
    −½u″ + (V_loc − Z/r + V_0) u = E u for u = rφ.
    """
    r = SPACING * np.arange(1, POINTS + 1)
    v = values(core.local, r) - charge / r + values((core.channels or ((),))[0], r)
    neighbours = np.eye(POINTS, k=1) + np.eye(POINTS, k=-1)
    _, u = np.linalg.eigh(np.diag(v + SPACING**-2) - 0.5 * SPACING**-2 * neighbours)
    log_phi = np.log(np.abs(u[:, 0] / r))
    top = log_phi.max()
    depth = round(float(top - log_phi[0]), 6)  # the same on all machines
    edge = max(NARROWEST, float(r[np.argmax(log_phi >= top - depth / math.e)]))
    return depth, 1.0 / (math.hypot(edge, SMOOTHING) - SMOOTHING)
