"""Gaussian elimination of many small matrices at a time."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Inexact

from vmcjob.fwdlap.cpu import is_cpu, kept

MAX_ELIMINATED: Final = 16
"""Largest number of rows for elimination on CPUs, all matrices at a time. LAPACK takes one matrix
after the other, and its overhead outweighs the arithmetic; it is as fast from twenty rows on."""


class PivotRow(NamedTuple):
    """A pivot row from its pivot on, and whether it was swapped with a row further down."""

    row: Inexact[Array, "*batch column"]
    is_swapped: Bool[Array, "*batch"]


def is_eliminated(a: Inexact[Array, "*batch n n"]) -> bool:
    """Whether matrices of this shape are handled by this module: small ones, on CPUs."""
    return a.shape[-1] <= MAX_ELIMINATED and is_cpu()


@jax.jit
def eliminated_slogdet(a: Inexact[Array, "*batch n n"]) -> tuple[Array, Array]:
    """Sign and log|det|, 0 and −∞ for a singular matrix. `linalg` knows this function by name."""
    sign, log_abs = jnp.ones(a.shape[:-2], a.dtype), jnp.zeros(a.shape[:-2], a.dtype)
    for row, is_swapped in _pivot_rows(a):
        pivot = row[..., 0]
        sign = sign * jnp.where(is_swapped, -jnp.sign(pivot), jnp.sign(pivot))
        log_abs = log_abs + jnp.log(jnp.abs(pivot))
    return sign, log_abs


def eliminated_factors(
    a: Inexact[Array, "*batch n n"],
) -> tuple[Inexact[Array, "*batch n n"], Inexact[Array, "*batch n n"]]:
    """L⁻¹ P and U⁻¹ of P A = L U: elimination turns [A, 1] into [U, L⁻¹ P].

    U⁻¹ is built from its last row upwards. If U is singular, the result is finite but no inverse.
    """
    n = a.shape[-1]
    eye = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)
    rows = [row for row, _ in _pivot_rows(jnp.concatenate([a, eye], axis=-1))]
    inverse = jnp.zeros((*a.shape[:-2], 0, n), a.dtype)
    for k, row in reversed(list(enumerate(rows))):
        pivot, others = row[..., :1], row[..., 1 : n - k, None]
        solved = (eye[..., k, :] - jnp.sum(others * inverse, axis=-2)) * reciprocal(pivot)
        inverse = kept(jnp.concatenate([solved[..., None, :], inverse], axis=-2))
    return jnp.stack([row[..., -n:] for row in rows], axis=-2), inverse


def _pivot_rows(a: Inexact[Array, "*batch n column"]) -> Iterator[PivotRow]:
    """The rows of U, followed by the transformed columns to their right.

    In each column the largest element becomes the pivot, and the elements below are eliminated.
    """
    for n in range(a.shape[-2], 0, -1):
        place = jnp.argmax(jnp.abs(a[..., 0]), axis=-1)
        is_pivot = (jnp.arange(n) == place[..., None])[..., None]
        row = jnp.sum(jnp.where(is_pivot, a, 0.0), axis=-2)
        yield PivotRow(row, place != 0)
        others = jnp.where(is_pivot, a[..., :1, :], a)[..., 1:, :]
        pivot = row[..., :1]
        scaled = _ratio(row[..., 1:], jnp.where(pivot == 0.0, 1.0, pivot))
        a = kept(others[..., 1:] - others[..., :1] * scaled[..., None, :])


def reciprocal(x: Array) -> Array:
    """1 / x, and 0 at x = 0."""
    is_zero, one = x == 0.0, jnp.ones_like(x)
    return jnp.where(is_zero, 0.0, _ratio(one, jnp.where(is_zero, one, x)))


@jax.custom_jvp
def _ratio(x: Array, y: Array) -> Array:
    """x / y, whose derivative has no square of y.

    An electron 40 bohr away has orbitals near 1e-20, whose square is zero in float32.
    """
    return x / y


@_ratio.defjvp
def _ratio_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    found = _ratio(x, y)
    return found, dx / y - found * (dy / y)
