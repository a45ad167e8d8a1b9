"""Sign, log|det| and inverse factors of matrices, with their derivatives in closed form."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Inexact

from vmcjob.fwdlap.cpu import kept, kept_in_order
from vmcjob.fwdlap.elimination import eliminated_factors, is_eliminated, reciprocal
from vmcjob.fwdlap.generic import stack_directions, uniform_blocks
from vmcjob.fwdlap.interpreter import bind, open_jaxpr
from vmcjob.fwdlap.node import Node, Value, make_node, total

HIGHEST = lax.Precision.HIGHEST

# Matrices up to this size are multiplied element by element.
MAX_WRITTEN_OUT = 5

ELIMINATION = "eliminated_slogdet"
"""Name of the function of `elimination` that computes a slogdet too."""


def is_slogdet(eqn: Any) -> bool:
    """Whether a custom_jvp call is a slogdet, JAX's or `elimination`'s, or only wraps one.

    The innermost function is compared as text. A wrapper may have its own first derivative, but
    that is the derivative of log|det| as well.
    """
    avals = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    if len(avals) != 3 or avals[0].ndim < 2 or avals[1].shape != avals[0].shape[:-2]:
        return False
    known = ELIMINATION, _slogdet_text(avals[0].shape, avals[0].dtype)
    return _innermost(eqn.params["call_jaxpr"]) in known


@cache
def _slogdet_text(shape: tuple[int, ...], dtype: Any) -> str:
    return _innermost(jax.make_jaxpr(jnp.linalg.slogdet)(jax.ShapeDtypeStruct(shape, dtype)))


def _innermost(closed: Any) -> str:
    """The text of the innermost function of nested calls, or ELIMINATION."""
    jaxpr, _ = open_jaxpr(closed)
    if len(jaxpr.eqns) == 1:
        called = jaxpr.eqns[0].params
        if called.get("name") == ELIMINATION:
            return ELIMINATION
        if body := called.get("jaxpr") or called.get("call_jaxpr"):
            return _innermost(body)
    return str(jaxpr)


def slogdet(eqn: Any, node: Node) -> list[Value]:
    """Sign and log|det A| of a stack of matrices, with one factorisation P A = L U.

        M_d = L⁻¹ P J_d U⁻¹,    J' = tr M_d,    L' = tr(U⁻¹ L⁻¹ P L) - sum_d tr(M_d M_d)

    M_d has the traces of A⁻¹ J_d. Near a node, A is nearly singular; then the large numbers of M_d
    sit in its last diagonal entry, not in all entries. So J'² and tr(M M) are rounded alike, and
    their difference, which enters the kinetic energy, stays accurate in float32.
    """
    sign, out = bind(eqn, [node.primal])
    left, right = inverse_factors(node.primal)
    directions, stacked = stack_directions([node])
    jacobian = laplacian = None
    if node.laplacian is not None:
        inverse = product(right, left)
        laplacian = _trace_of_product(inverse, node.laplacian)
    if stacked:
        jacobian, squares = _traces(left, stacked[0], right)
        laplacian = total(laplacian, -squares)
    if not jnp.iscomplexobj(out) and not jnp.iscomplexobj(node.primal):
        return [sign, make_node(out, uniform_blocks(jacobian, directions), laplacian)]
    phase = _phase(sign, jacobian, laplacian)
    log_abs = (None if part is None else jnp.real(part) for part in (jacobian, laplacian))
    return [
        make_node(primal, uniform_blocks(first, directions), second)
        for primal, (first, second) in ((sign, phase), (out, log_abs))
    ]


def _phase(
    sign: Array, jacobian: Array | None, laplacian: Array | None
) -> tuple[Array | None, Array | None]:
    """Jacobian and Laplacian of s = exp(i Im w), from those of w = log det.

    s_d = i s Im w_d,    Δs = s (i Im Δw - sum_d (Im w_d)²)
    """
    first = second = None
    if laplacian is not None:
        second = 1j * sign * jnp.imag(laplacian)
    if jacobian is not None:
        turn = jnp.imag(jacobian)
        first = 1j * sign * turn
        second = total(second, -sign * jnp.sum(turn**2, axis=0))
    return first, second


def inverse_factors(
    a: Inexact[Array, "*batch n n"],
) -> tuple[Inexact[Array, "*batch n n"], Inexact[Array, "*batch n n"]]:
    """L⁻¹ P and U⁻¹ of P A = L U; their product U⁻¹ L⁻¹ P is A⁻¹.

    Large matrices use matrix products instead of triangular solves. On XLA:CPU two independent
    batches of LAPACK's solves can take all threads of the pool and wait for each other for ever.
    """
    if is_eliminated(a):
        return eliminated_factors(a)
    whole, _, order = lax.linalg.lu(a)
    rows = (order[..., None] == jnp.arange(a.shape[-1])).astype(a.dtype)
    lower = jnp.tril(whole, -1) + jnp.eye(a.shape[-1], dtype=a.dtype)
    upper = jnp.swapaxes(jnp.triu(whole), -1, -2)
    return product(_lower_inverse(lower), rows), jnp.swapaxes(_lower_inverse(upper), -1, -2)


def _lower_inverse(lower: Inexact[Array, "*batch n n"]) -> Inexact[Array, "*batch n n"]:
    """Inverse of lower triangular matrices, from blocks whose size doubles at each step.

        [A 0; C B]⁻¹ = [A⁻¹ 0; -B⁻¹ C A⁻¹ B⁻¹]

    All diagonal blocks are treated at once; a mask selects their corners C.
    """
    n = lower.shape[-1]
    index = np.arange(n)
    diagonal = jnp.diagonal(lower, axis1=-2, axis2=-1)[..., None]
    # A singular matrix has no inverse: return finite numbers, which later get a weight of zero.
    inverse = jnp.eye(n, dtype=lower.dtype) * reciprocal(diagonal)
    size = 1
    while size < n:
        block = index // size
        corner = (block[:, None] == block + 1) & (block % 2 == 0)
        middle = product(jnp.where(corner, lower, 0.0), inverse)
        inverse = inverse - product(inverse, middle)
        size *= 2
    return inverse


def product(
    a: Inexact[Array, "... m k"], b: Inexact[Array, "... k n"]
) -> Inexact[Array, "... m n"]:
    """Matrix products; small ones term by term, so that XLA fuses them with earlier operations."""
    if a.shape[-1] > MAX_WRITTEN_OUT:
        return jnp.matmul(a, b, precision=HIGHEST)
    terms = [a[..., :, k, None] * b[..., k, None, :] for k in range(a.shape[-1])]
    return kept(sum(terms[1:], terms[0]))


def _traces(
    left: Inexact[Array, "*batch n n"],
    stack: Inexact[Array, " direction *batch n n"],
    right: Inexact[Array, "*batch n n"],
) -> tuple[Inexact[Array, " direction *batch"], Inexact[Array, "*batch"]]:
    """tr M_d and sum_d tr(M_d M_d) of M_d = left J_d right, for the leading axis d of `stack`.

    For large matrices, all directions are side by side in the products, as one long right factor.
    """
    if left.shape[-1] <= MAX_WRITTEN_OUT:
        turned = product(product(left, stack), right)
        squares = jnp.sum(_trace_of_product(turned, turned), axis=0)
        return jnp.trace(turned, axis1=-2, axis2=-1), squares
    n = left.ndim - 2
    batch = tuple(range(n))
    rows = kept_in_order(stack, (*range(1, n + 2), 0, n + 2))  # (..., i, d, j)
    rows = lax.dot_general(left, rows, (((n + 1,), (n,)), (batch, batch)), precision=HIGHEST)
    rows = kept_in_order(rows, (*batch, n + 2, n, n + 1))  # (..., j, i, d)
    turned = lax.dot_general(right, rows, (((n,), (n,)), (batch, batch)), precision=HIGHEST)
    squares = jnp.sum(turned * jnp.swapaxes(turned, -3, -2), axis=(-3, -2, -1))  # (..., j, i, d)
    n_rows = left.shape[-1]
    entries = turned.reshape(*turned.shape[:n], n_rows * n_rows, -1)
    # Faster than jnp.trace, which reads all entries to find the diagonal.
    diagonal = lax.slice_in_dim(entries, 0, None, n_rows + 1, axis=n)
    return jnp.moveaxis(jnp.sum(diagonal, axis=n), -1, 0), squares


def _trace_of_product(
    a: Inexact[Array, "*batch n n"], b: Inexact[Array, "*batch n n"]
) -> Inexact[Array, "*batch"]:
    """tr(a b) over the last two axes."""
    return jnp.sum(a * jnp.swapaxes(b, -1, -2), axis=(-2, -1))
