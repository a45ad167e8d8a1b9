"""Sign and log|det| of stacks of matrices, with a derivative that reuses the inverse."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.fwdlap.cpu import kept
from vmcjob.fwdlap.elimination import eliminated_slogdet, is_eliminated
from vmcjob.fwdlap.linalg import inverse_factors, product


def slogdet(a: Float[Array, "*batch n n"]) -> tuple[Array, Array]:
    """Sign and log|det| of real matrices; 0 and −∞ for a singular matrix.

    The derivative tr(A⁻¹ dA) stores the inverse. So the product of a linearization with a vector
    needs no factorisation and no triangular solve (`inverse_factors` says why solves are avoided).
    Where the determinant vanishes the derivative is zero, because the determinant has no weight in
    any sum.
    """
    return kept(_slogdet(a))


@jax.custom_jvp
def _slogdet(a: Float[Array, "*batch n n"]) -> tuple[Array, Array]:
    sign, log_abs = (eliminated_slogdet if is_eliminated(a) else jnp.linalg.slogdet)(a)
    return sign, log_abs


@_slogdet.defjvp
def _slogdet_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    left, right = inverse_factors(a)
    sign, log_abs = _slogdet(a)
    inverse = jnp.where((sign != 0.0)[..., None, None], product(right, left), 0.0)
    change = jnp.sum(jnp.swapaxes(inverse, -1, -2) * da, axis=(-2, -1))
    return (sign, log_abs), (jnp.zeros_like(sign), change)
