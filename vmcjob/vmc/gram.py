"""The linear system of SR in sample space, (O Oᵀ + λ) w = b, solved in the type of the scores.

O Oᵀ has one row per walker of all devices. It is singular: along the mean, because scores are
centred, and if there are more walkers than parameters. In float32, rounding turns its zero
eigenvalues into about 1e-7 of the largest ones, which may be as large as λ. Its Cholesky factor,
shifted further if there is none, is therefore only the preconditioner of conjugate gradients on O
(Oᵀ v) + λ v, which squares nothing. Some iterations, each of which reads the scores twice, replace
a product in float64.

If many walkers see the same few things, few eigenvalues are larger than λ, and a part of the matrix
determines these. Then an eighth of the columns makes a preconditioner (Nyström's), and about ten
iterations replace the other columns and their factorisation. If the iterations do not converge,
because other walkers differ from this part, the full matrix is factorised after all.

The result is the direction Oᵀ w. If no scores explain b, w has a length of up to |b| / λ, and its
rounding would show in the product. So the iterations carry the direction instead of w, and correct
its rounding as part of the residual b − λ w − O (Oᵀ w).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from vmcjob.vmc.centred_scores import HIGHEST, CentredScores, EveryWalker, Gram, Parts

Made = TypeVar("Made")

TOLERANCE = 1e-6
"""Largest residual, relative to b."""
MAX_ITERATIONS = 30
MAX_SHIFTS = 8

MIN_WALKERS = 1024
"""Fewest walkers for which a part of the Gram matrix is tried; with fewer, all of it is cheap."""
PART = 8
"""The first 1 / PART of the columns are tried, and the last 1 / PART of their pivots judge them."""
MAX_LEFT = 400.0
"""Largest remaining trace, in λ: up to it, some twenty iterations cost less than G."""
SAFETY = 4.0
"""Shift of the diagonal of a part, in units of its rounding."""


class SolvedGram(NamedTuple):
    """Oᵀ (O Oᵀ + λ)⁻¹ b, with facts about its computation."""

    direction: Parts
    # lower bound of the condition number of the matrix plus λ, plus shift
    condition: Float[Array, ""]
    shift: Float[Array, ""]  # added to the diagonal beyond λ, where a Cholesky factor needed this
    iterations: Float[Array, ""]  # iterations of CG
    has_arrived: Bool[Array, ""]  # whether CG converged


def solve_gram(scores: CentredScores, rhs: EveryWalker, damping: float | Array) -> SolvedGram:
    """Oᵀ (O Oᵀ + λ)⁻¹ b with the walkers of all devices as rows; inside pmap."""

    def by_whole() -> SolvedGram:
        return _solved(scores, damping, _factorise(scores.gram(), damping), rhs)

    if len(scores.columns) < MIN_WALKERS:
        return by_whole()
    lower, is_enough = _try_part(scores, damping)

    def by_part() -> SolvedGram:
        return _solved(scores, damping, _nystrom(scores, damping, lower), rhs)

    found = jax.lax.cond(is_enough, by_part, partial(_nothing_like, by_part))
    # If CG with the Nyström preconditioner did not converge, factorise the full Gram matrix.
    return jax.lax.cond(found.has_arrived, lambda: found, by_whole)


def apply_inverse(
    scores: CentredScores, rhs: Float[Array, "some every"], damping: float | Array
) -> Parts:
    """Oᵀ (O Oᵀ + λ)⁻¹ b of several b, the rows of `rhs`, one after the other; inside pmap.

    Without the iterations of `solve_gram`: the rounding of O Oᵀ has to be small beside λ.
    """
    solve = _factorise(scores.gram(), damping).solve
    return jax.lax.map(lambda b: scores.apply_transpose(solve(b)), rhs)


def _solved(
    scores: CentredScores, damping: float | Array, found: "_Nystrom | _Factored", rhs: EveryWalker
) -> SolvedGram:
    end = _conjugate_gradients(scores, damping, found.solve, rhs)
    iterations = end.n_iterations.astype(rhs.dtype)
    has_arrived = jnp.linalg.norm(end.residual) <= TOLERANCE * jnp.linalg.norm(rhs)
    return SolvedGram(end.direction, found.condition, found.shift, iterations, has_arrived)


def _nothing_like(make: Callable[[], Made]) -> Made:
    """Zeros in the shapes of the result of `make`."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make))


class _Nystrom(NamedTuple):
    """The approximation B Bᵀ + λ of a Gram matrix plus λ."""

    transposed: Float[Array, "some every"]  # Bᵀ
    upper: Float[Array, "some some"]  # Cholesky factor of Bᵀ B + λ
    damping: Float[Array, ""]  # λ

    @property
    def condition(self) -> Float[Array, ""]:
        """Lower bound of the condition number (`SolvedGram`); the smallest eigenvalue is λ.

        Centred scores are singular, so λ is an eigenvalue.
        """
        return jnp.max(jnp.diagonal(self.upper)) ** 2 / self.damping

    @property
    def shift(self) -> Float[Array, ""]:
        """Zero: no shift is needed (`SolvedGram`)."""
        return jnp.zeros_like(self.damping)

    def solve(self, v: EveryWalker) -> EveryWalker:
        """(B Bᵀ + λ)⁻¹ v = (v − B (Bᵀ B + λ)⁻¹ Bᵀ v) / λ."""
        inner = jnp.matmul(self.transposed, v, precision=HIGHEST)
        inner = jax.scipy.linalg.cho_solve((self.upper, False), inner)
        return (v - jnp.matmul(inner, self.transposed, precision=HIGHEST)) / self.damping


def _try_part(
    scores: CentredScores, damping: float | Array
) -> tuple[Float[Array, "some some"], Bool[Array, ""]]:
    """Cholesky factor of the Gram matrix of some walkers, and whether these walkers are enough.

    A pivot is the part of a walker's diagonal element that earlier walkers do not explain. The last
    pivots estimate how much of the trace of O Oᵀ all of them leave unexplained. Divided by λ, this
    is a bound of the condition number for the iterations.
    """
    n_every = len(scores.columns)
    n = n_every // PART
    gram = scores.gram_of_first(n)
    rounding = jnp.finfo(gram.dtype).eps * jnp.trace(gram)
    lower = jnp.linalg.cholesky(gram + SAFETY * rounding * jnp.eye(n, dtype=gram.dtype))
    left = n_every * jnp.mean(jnp.diagonal(lower)[-(n // PART) :] ** 2)
    return lower, left <= MAX_LEFT * damping


def _nystrom(
    scores: CentredScores, damping: float | Array, lower: Float[Array, "some some"]
) -> _Nystrom:
    """B Bᵀ = G Ω (Ωᵀ G Ω)⁻¹ Ωᵀ G, an approximation of G = O Oᵀ by some walkers Ω.

    See arXiv:2110.02820.

    Args:
        scores: O.
        damping: λ.
        lower: the Cholesky factor of Ωᵀ G Ω.
    """
    n, one = len(lower), jnp.eye(len(lower), dtype=lower.dtype)
    columns = scores.gram_columns(n)
    transposed = jax.scipy.linalg.solve_triangular(lower, columns.T, lower=True)
    inner = jnp.matmul(transposed, transposed.T, precision=HIGHEST) + damping * one
    upper = jax.scipy.linalg.cho_factor(inner)[0]
    return _Nystrom(transposed, upper, jnp.asarray(damping, lower.dtype))


class _Factored(NamedTuple):
    """The Cholesky factor U of a Gram matrix plus λ plus shift: Uᵀ U."""

    upper: Gram
    shift: Float[Array, ""]

    @property
    def condition(self) -> Float[Array, ""]:
        """Lower bound of the condition number (`SolvedGram`), max U_ii² / min U_ii²."""
        diagonal = jnp.diagonal(self.upper)
        return (jnp.max(diagonal) / jnp.min(diagonal)) ** 2

    def solve(self, v: EveryWalker) -> EveryWalker:
        """(Uᵀ U)⁻¹ v."""
        return jax.scipy.linalg.cho_solve((self.upper, False), v)


def _factorise(gram: Gram, damping: float | Array) -> _Factored:
    """The factor of G + λ + shift, with shift 0 if possible; reads the upper triangle of G.

    LAPACK's lower factor of a matrix in column order is the upper factor of the same matrix in row
    order, so nothing is transposed before or after.
    """
    trace = jnp.trace(gram)
    least = jnp.finfo(gram.dtype).eps * trace

    def factor(shift: Array) -> Gram:
        shifted = gram + (damping + shift) * jnp.eye(len(gram), dtype=gram.dtype)
        return jax.scipy.linalg.cho_factor(shifted)[0]

    def has_failed(tried: tuple[Array, _Factored]) -> Bool[Array, ""]:
        n_shifts, factored = tried
        is_whole = jnp.all(jnp.isfinite(jnp.diagonal(factored.upper)))
        # If the trace is not a number, no shift helps.
        return ~is_whole & jnp.isfinite(trace) & (n_shifts < MAX_SHIFTS)

    def shifted_further(tried: tuple[Array, _Factored]) -> tuple[Array, _Factored]:
        n_shifts, factored = tried
        shift = jnp.maximum(least, 10.0 * factored.shift)
        return n_shifts + 1, _Factored(factor(shift), shift)

    none = jnp.zeros((), gram.dtype)
    first = jnp.zeros((), jnp.int32), _Factored(factor(none), none)
    return jax.lax.while_loop(has_failed, shifted_further, first)[1]


class _Iterate(NamedTuple):
    """State of conjugate gradients after some iterations; w itself is not needed."""

    direction: Parts  # Oᵀ w
    residual: EveryWalker
    search: EveryWalker
    product: Float[Array, ""]  # scalar product of the residual and the preconditioned residual
    n_iterations: Array  # -1 before the solution by the preconditioner alone


def _conjugate_gradients(
    scores: CentredScores,
    damping: float | Array,
    precondition: Callable[[EveryWalker], EveryWalker],
    rhs: EveryWalker,
) -> _Iterate:
    """Conjugate gradients, beginning at the preconditioner's solution.

    (Saad, Iterative Methods, algorithm 9.1.) The preconditioner's solution is iteration 0 of the
    same loop, so the loop is compiled once.
    """
    limit = TOLERANCE * jnp.linalg.norm(rhs)

    def is_too_far(now: _Iterate) -> Bool[Array, ""]:
        is_far = (jnp.linalg.norm(now.residual) > limit) & (now.n_iterations < MAX_ITERATIONS)
        return is_far | (now.n_iterations < 0)

    def iterate(now: _Iterate) -> _Iterate:
        transposed = scores.apply_transpose(now.search)
        image = scores.apply(transposed) + damping * now.search
        is_first = now.n_iterations < 0  # a full step along the preconditioner's solution
        length = jnp.where(is_first, 1.0, now.product / jnp.vdot(now.search, image))
        residual = now.residual - length * image
        better = precondition(residual)
        product = jnp.vdot(residual, better)
        search = better + jnp.where(is_first, 0.0, product / now.product) * now.search
        direction = jax.tree.map(lambda d, t: d + length * t, now.direction, transposed)
        return _Iterate(direction, residual, search, product, now.n_iterations + 1)

    shapes = jax.eval_shape(scores.apply_transpose, rhs)
    nothing = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), shapes)
    before, one = jnp.asarray(-1, jnp.int32), jnp.ones((), rhs.dtype)
    start = _Iterate(nothing, rhs, precondition(rhs), one, before)
    return jax.lax.while_loop(is_too_far, iterate, start)
