"""Parameters that must be positive, whatever learning makes of them, within bounds of any use."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

MIN_LENGTH, MAX_LENGTH = 1e-3, 1e2
"""In bohr; its inverse bounds decays alike: from far beyond any orbital to inside any core."""


def length(parameter: ArrayLike) -> Array:
    """A length in bohr: the size of a parameter, whose sign does not count."""
    return jnp.clip(jnp.abs(parameter), MIN_LENGTH, MAX_LENGTH)


def decay(log: ArrayLike) -> Array:
    """A decay constant in 1/bohr from its logarithm: a length's inverse, so bounded as lengths are.

    None at all could not be normalized; an infinite one times no distance is not a number.
    """
    return jnp.exp(jnp.clip(log, -jnp.log(MAX_LENGTH), -jnp.log(MIN_LENGTH)))
