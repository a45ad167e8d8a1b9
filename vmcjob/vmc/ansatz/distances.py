"""Electron–nucleus distances, and features of vectors, as wave functions take them."""

from typing import Final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.system import System

SMOOTHING: Final = 1.0
"""Bohr. About the radius of a core, and less than that of the valence shell."""


def nuclear_distances(system: System, away: Float[Array, "elec nuc 3"]) -> Float[Array, "elec nuc"]:
    """Distances d from vectors r − R; √(d² + a²) − a for nuclei with a core, a = `SMOOTHING`.

    The potential of such a nucleus is finite, so ψ has no cusp there. The smooth distance is
    quadratic near the nucleus, and features and envelopes that take it are smooth too.
    """
    d = jnp.linalg.norm(away, axis=-1)
    if not system.has_cores:
        return d
    has_core = np.array([one.core is not None for one in system.species])
    square = jnp.sum(away**2, axis=-1)
    smooth = square / (SMOOTHING + jnp.sqrt(square + SMOOTHING**2))
    return jnp.where(has_core, smooth, d)


def features(away: Float[Array, "*some 3"], d: Float[Array, "*some"]) -> Float[Array, "*some 4"]:
    """Vectors and their lengths, as networks take them: (x, d)."""
    return jnp.concatenate([away, d[..., None]], axis=-1)


def rescaled(away: Float[Array, "*some 3"], d: Float[Array, "*some"]) -> Float[Array, "*some 4"]:
    """The features (x, d) log(1 + d)/d, which grow slowly with the distance."""
    growth, is_zero = jnp.log1p(d), d == 0.0
    # 0 / 0 has the limit 1, and a derivative that multiplies x = 0.
    scale = jnp.where(is_zero, 1.0, growth / jnp.where(is_zero, 1.0, d))
    return features(away * scale[..., None], growth)
