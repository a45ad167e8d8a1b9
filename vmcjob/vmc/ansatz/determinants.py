"""Sums of determinants of orbitals, in logarithms and signs."""

import math

import jax
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
    parts = [slogdet(stack) for stack in stacks]
    sign = math.prod(part[0] for part in parts)
    log_abs = sum(part[1] for part in parts)
    largest = jnp.max(log_abs)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)  # −∞ − (−∞) would be NaN
    total = jnp.sum(sign * jnp.exp(log_abs - largest))
    return Psi(jnp.sign(total), largest + jnp.log(jnp.abs(total)))


@jax.custom_jvp
def slogdet(a: Array) -> tuple[Array, Array]:
    """Sign and log|det| of a stack of square matrices.

    Its derivative, tr(A⁻¹ dA), keeps the inverse: a linearized product then costs no
    factorisation, and none of the triangular solves that `fwdlap.inverse_factors` avoids. Zero
    where the determinant has vanished: it has no weight in any sum.
    """
    sign, log_abs = jnp.linalg.slogdet(a)
    return sign, log_abs


@slogdet.defjvp
def _slogdet_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    left, right = fwdlap.inverse_factors(a)
    sign, log_abs = slogdet(a)
    product = jnp.matmul(right, left, precision=jax.lax.Precision.HIGHEST)
    inverse = jnp.where((sign != 0.0)[..., None, None], product, 0.0)
    change = jnp.sum(jnp.swapaxes(inverse, -1, -2) * da, axis=(-2, -1))
    return (sign, log_abs), (jnp.zeros_like(sign), change)
