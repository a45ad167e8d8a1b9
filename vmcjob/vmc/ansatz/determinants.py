"""Sums of determinants of orbitals, in logarithms."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def log_abs_sum_det(orbitals: Float[Array, "det elec elec"]) -> Float[Array, ""]:
    """log |Σ_k det Φ_k| of one walker.

    The largest determinant is taken out before the sum, so that no determinant of any size under-
    or overflows. −∞ at a node.
    """
    sign, log_abs = jnp.linalg.slogdet(orbitals)
    largest = jnp.max(log_abs)
    return largest + jnp.log(jnp.abs(jnp.sum(sign * jnp.exp(log_abs - largest))))
