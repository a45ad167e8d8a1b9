"""Distances of all pairs of electrons, with derivatives that are finite on the diagonal too."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def pair_distances(r_ee: Float[Array, "elec elec 3"]) -> Float[Array, "elec elec"]:
    """|r_i − r_j| of one walker; zero, with all derivatives, for an electron and itself."""
    # The norm has no derivative at zero: on the diagonal another vector's is taken, and dropped.
    diagonal = jnp.eye(r_ee.shape[0], dtype=r_ee.dtype)
    return jnp.linalg.norm(r_ee + diagonal[..., None], axis=-1) * (1.0 - diagonal)
