"""Sign and log|det| of stacks of matrices, with a first derivative that a linear pass keeps."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.fwdlap.linalg import MAX_ELIMINATED, inverse_factors, product

ELIMINATED = range(3, MAX_ELIMINATED + 1)
"""Sizes of matrices that are eliminated element by element; for two rows JAX has a formula."""


@jax.custom_jvp
def slogdet(a: Float[Array, "*batch n n"]) -> tuple[Array, Array]:
    """Sign and log|det| of real matrices; 0 and −∞ of one that is singular.

    Its derivative, tr(A⁻¹ dA), keeps the inverse: a linearized product then costs no
    factorisation, and none of the triangular solves that `inverse_factors` avoids. Zero where the
    determinant has vanished: it has no weight in any sum.
    """
    sign, log_abs = (eliminated_slogdet if a.shape[-1] in ELIMINATED else jnp.linalg.slogdet)(a)
    return sign, log_abs


@slogdet.defjvp
def _slogdet_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    left, right = inverse_factors(a)
    sign, log_abs = slogdet(a)
    inverse = jnp.where((sign != 0.0)[..., None, None], product(right, left), 0.0)
    change = jnp.sum(jnp.swapaxes(inverse, -1, -2) * da, axis=(-2, -1))
    return (sign, log_abs), (jnp.zeros_like(sign), change)


@jax.jit
def eliminated_slogdet(a: Float[Array, "*batch n n"]) -> tuple[Array, Array]:
    """The same by Gauss's elimination with partial pivoting, written out.

    In each column the largest element is brought up row by row. Known to `linalg` by its name.
    """
    n = a.shape[-1]
    rows = [[a[..., i, j] for j in range(n)] for i in range(n)]
    sign, log_abs = jnp.ones(a.shape[:-2], a.dtype), jnp.zeros(a.shape[:-2], a.dtype)
    for k in range(n):
        for i in range(k + 1, n):
            is_larger = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            sign = jnp.where(is_larger, -sign, sign)
            for j in range(k, n):
                upper, lower = rows[k][j], rows[i][j]
                rows[k][j] = jnp.where(is_larger, lower, upper)
                rows[i][j] = jnp.where(is_larger, upper, lower)
        pivot = rows[k][k]
        sign, log_abs = sign * jnp.sign(pivot), log_abs + jnp.log(jnp.abs(pivot))
        reciprocal = 1.0 / jnp.where(pivot == 0.0, 1.0, pivot)
        for i in range(k + 1, n):
            factor = rows[i][k] * reciprocal
            for j in range(k + 1, n):
                rows[i][j] = rows[i][j] - factor * rows[k][j]
    return sign, log_abs
