"""Gauss's elimination of many small matrices side by side."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from vmcjob.fwdlap.kept import kept

MAX_ELIMINATED: Final = 16
"""Rows of matrices that are eliminated side by side on CPUs. LAPACK takes them one after the other,
with more ado than arithmetic; only at twenty rows it is as fast."""


class PivotRow(NamedTuple):
    """A row that elimination has brought up, from its pivot on, and whether from further down."""

    row: Float[Array, "*batch column"]
    is_swapped: Bool[Array, "*batch"]


def is_eliminated(a: Float[Array, "*batch n n"]) -> bool:
    """Whether these matrices are left to the functions of this module."""
    return a.shape[-1] <= MAX_ELIMINATED and jax.default_backend() == "cpu"


@jax.jit
def eliminated_slogdet(a: Float[Array, "*batch n n"]) -> tuple[Array, Array]:
    """Sign and log|det|, 0 and −∞ of a singular matrix. Known to `linalg` by its name."""
    sign, log_abs = jnp.ones(a.shape[:-2], a.dtype), jnp.zeros(a.shape[:-2], a.dtype)
    for row, is_swapped in _pivot_rows(a):
        pivot = row[..., 0]
        sign = sign * jnp.where(is_swapped, -jnp.sign(pivot), jnp.sign(pivot))
        log_abs = log_abs + jnp.log(jnp.abs(pivot))
    return sign, log_abs


def eliminated_factors(
    a: Float[Array, "*batch n n"],
) -> tuple[Float[Array, "*batch n n"], Float[Array, "*batch n n"]]:
    """L⁻¹ P and U⁻¹ of P A = L U: elimination makes [U, L⁻¹ P] of [A, 1].

    U⁻¹ from its last row on. Of a singular U there is none: finite numbers all the same.
    """
    n = a.shape[-1]
    eye = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)
    rows = [row for row, _ in _pivot_rows(jnp.concatenate([a, eye], axis=-1))]
    inverse = jnp.zeros((*a.shape[:-2], 0, n), a.dtype)
    for k, row in reversed(list(enumerate(rows))):
        pivot, others = row[..., :1], row[..., 1 : n - k, None]
        reciprocal = jnp.where(pivot == 0.0, 0.0, 1.0 / jnp.where(pivot == 0.0, 1.0, pivot))
        solved = (eye[..., k, :] - jnp.sum(others * inverse, axis=-2)) * reciprocal
        inverse = kept(jnp.concatenate([solved[..., None, :], inverse], axis=-2))
    return jnp.stack([row[..., -n:] for row in rows], axis=-2), inverse


def _pivot_rows(a: Float[Array, "*batch n column"]) -> Iterator[PivotRow]:
    """The rows of U, and what has become of the columns behind them.

    In each column the largest element is brought up, and what is below it eliminated.
    """
    for n in range(a.shape[-2], 0, -1):
        place = jnp.argmax(jnp.abs(a[..., 0]), axis=-1)
        is_pivot = (jnp.arange(n) == place[..., None])[..., None]
        row = jnp.sum(jnp.where(is_pivot, a, 0.0), axis=-2)
        yield PivotRow(row, place != 0)
        others = jnp.where(is_pivot, a[..., :1, :], a)[..., 1:, :]
        scaled = row[..., 1:] / jnp.where(row[..., :1] == 0.0, 1.0, row[..., :1])
        a = kept(others[..., 1:] - others[..., :1] * scaled[..., None, :])
