"""Positive parameters within sensible bounds, for any value of the learned number."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

MIN_LENGTH, MAX_LENGTH = 1e-3, 1e2
"""In bohr. The inverses bound decay constants: from the size of any core to beyond any orbital."""


def length(parameter: ArrayLike) -> Array:
    """A length in bohr: the absolute value of a parameter, within bounds."""
    return jnp.clip(jnp.abs(parameter), MIN_LENGTH, MAX_LENGTH)


def decay(log: ArrayLike) -> Array:
    """A decay constant in 1/bohr from its logarithm; its inverse, a length, is within bounds.

    A decay constant of zero could not be normalized; an infinite one times a distance of zero is
    NaN.
    """
    return jnp.exp(jnp.clip(log, -jnp.log(MAX_LENGTH), -jnp.log(MIN_LENGTH)))
