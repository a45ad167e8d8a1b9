"""Sums of determinants of orbitals, in logarithms and signs."""

import math

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.contracts import Psi

Stacks = tuple[Float[Array, "det _ _"], ...]
"""Square matrices of orbitals, of all electrons or of each spin, which may differ in number.

ψ sums over `det` the products of their determinants.
"""


def sum_of_determinants(stacks: Stacks) -> Psi:
    """Σ_k Π_s det Φ_sk of one walker.

    The largest product is taken out before the sum, so that no determinant of any size under- or
    overflows.
    """
    parts = [fwdlap.kept(fwdlap.slogdet(stack)) for stack in stacks]
    sign = math.prod(part[0] for part in parts)
    log_abs = sum(part[1] for part in parts)
    largest = jnp.max(log_abs)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)  # −∞ − (−∞) would be NaN
    total = jnp.sum(sign * jnp.exp(log_abs - largest))
    return Psi(jnp.sign(total), largest + jnp.log(jnp.abs(total)))
