"""Distances of all pairs of electrons, with finite derivatives also on the diagonal."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def pair_distances(r_ee: Float[Array, "elec elec 3"]) -> Float[Array, "elec elec"]:
    """|r_i − r_j| of one walker; zero, with all derivatives, for i = j."""
    # The norm has no derivative at zero. On the diagonal, use another vector's norm and multiply by
    # 0.
    diagonal = jnp.eye(r_ee.shape[0], dtype=r_ee.dtype)
    return jnp.linalg.norm(r_ee + diagonal[..., None], axis=-1) * (1.0 - diagonal)
