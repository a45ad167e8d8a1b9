"""The linear system of SR in sample space, (O Oᵀ + λ) w = b, in the type of the scores.

O Oᵀ has as many rows as there are walkers, of all devices, and is singular: along their mean, as
scores O are centred, and wherever walkers outnumber parameters. What rounding leaves of its zero
eigenvalues, about 1e-7 of the largest ones in float32, may be as large as λ. Its Cholesky factor,
shifted further where there is none, is therefore only the preconditioner of conjugate gradients on
O (Oᵀ v) + λ v, which squares nothing: some iterations, each of which reads the scores twice, stand
for a product in float64.

Few eigenvalues are larger than λ where many walkers see the same few things. A part of the matrix
knows these: an eighth of its columns then makes a preconditioner (Nyström's), and ten iterations
take the place of the other columns and their factorisation. Should the others be unlike that part,
so that the iterations do not arrive, all of the matrix is factorised after all.

Wanted is the direction Oᵀ w, and w is up to |b| / λ long where no scores explain b: its rounding
alone would show in the product. So the iterations carry along the direction instead of w, and mend
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
"""Of the residual, relative to b."""
MAX_ITERATIONS = 30
MAX_SHIFTS = 8

MIN_WALKERS = 1024
"""From which on a part of the Gram matrix is tried: of fewer, all of it costs little."""
PART = 8
"""As many columns are tried as this goes into the number of walkers; as many pivots judge them."""
MAX_LEFT = 400.0
"""Of the trace, in λ, that may be left: up to there, some twenty iterations cost less than G."""
SAFETY = 4.0
"""Rounding that the diagonal of a part may have."""


class SolvedGram(NamedTuple):
    """Oᵀ (O Oᵀ + λ)⁻¹ b, and how it was come by."""

    direction: Parts
    condition: Float[Array, ""]  # lower bound of that of the matrix plus λ, and plus its shift
    shift: Float[Array, ""]  # its diagonal had beyond λ, as there was no Cholesky factor without
    iterations: Float[Array, ""]  # of CG
    has_arrived: Bool[Array, ""]  # the residual is as small as it should be


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
    # What some walkers promise, others that are unlike them need not keep.
    return jax.lax.cond(found.has_arrived, lambda: found, by_whole)


def _solved(
    scores: CentredScores, damping: float | Array, found: "_Nystrom | _Factored", rhs: EveryWalker
) -> SolvedGram:
    end = _conjugate_gradients(scores, damping, found.solve, rhs)
    iterations = end.n_iterations.astype(rhs.dtype)
    has_arrived = jnp.linalg.norm(end.residual) <= TOLERANCE * jnp.linalg.norm(rhs)
    return SolvedGram(end.direction, found.condition, found.shift, iterations, has_arrived)


def _nothing_like(make: Callable[[], Made]) -> Made:
    """What would be made, but zeros."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make))


class _Nystrom(NamedTuple):
    """B Bᵀ + λ for a Gram matrix plus λ."""

    transposed: Float[Array, "some every"]  # Bᵀ
    upper: Float[Array, "some some"]  # Cholesky factor of Bᵀ B + λ
    damping: Float[Array, ""]  # λ

    @property
    def condition(self) -> Float[Array, ""]:
        """As in `SolvedGram`: the smallest eigenvalue is λ, that of what centred scores lack."""
        return jnp.max(jnp.diagonal(self.upper)) ** 2 / self.damping

    @property
    def shift(self) -> Float[Array, ""]:
        """As in `SolvedGram`: none is needed."""
        return jnp.zeros_like(self.damping)

    def solve(self, v: EveryWalker) -> EveryWalker:
        """(B Bᵀ + λ)⁻¹ v = (v − B (Bᵀ B + λ)⁻¹ Bᵀ v) / λ."""
        inner = jnp.matmul(self.transposed, v, precision=HIGHEST)
        inner = jax.scipy.linalg.cho_solve((self.upper, False), inner)
        return (v - jnp.matmul(inner, self.transposed, precision=HIGHEST)) / self.damping


def _try_part(
    scores: CentredScores, damping: float | Array
) -> tuple[Float[Array, "some some"], Bool[Array, ""]]:
    """Cholesky's factor of the Gram matrix of some walkers, and whether they say enough.

    A pivot is what the walkers before leave of a walker's diagonal element. The last ones tell
    about what all of them leave of the trace of O Oᵀ: over λ, a bound of the condition number that
    is left to the iterations.
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
    """With G = O Oᵀ and some walkers Ω: G Ω (Ωᵀ G Ω)⁻¹ Ωᵀ G = B Bᵀ (arXiv:2110.02820).

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
    """A Cholesky factor U of a Gram matrix plus λ, plus a shift: Uᵀ U."""

    upper: Gram
    shift: Float[Array, ""]

    @property
    def condition(self) -> Float[Array, ""]:
        """As in `SolvedGram`: at least max U_ii² / min U_ii²."""
        diagonal = jnp.diagonal(self.upper)
        return (jnp.max(diagonal) / jnp.min(diagonal)) ** 2

    def solve(self, v: EveryWalker) -> EveryWalker:
        """(Uᵀ U)⁻¹ v."""
        return jax.scipy.linalg.cho_solve((self.upper, False), v)


def _factorise(gram: Gram, damping: float | Array) -> _Factored:
    """G + λ + shift factorised, with no shift if that is enough; of G, the upper triangle counts.

    What LAPACK calls the lower factor of a matrix that lies column by column is the upper one of
    the same matrix row by row: so nothing is transposed on its way there and back.
    """
    trace = jnp.trace(gram)
    least = jnp.finfo(gram.dtype).eps * trace

    def factor(shift: Array) -> Gram:
        shifted = gram + (damping + shift) * jnp.eye(len(gram), dtype=gram.dtype)
        return jax.scipy.linalg.cho_factor(shifted)[0]

    def has_failed(tried: tuple[Array, _Factored]) -> Bool[Array, ""]:
        n_shifts, factored = tried
        is_whole = jnp.all(jnp.isfinite(jnp.diagonal(factored.upper)))
        # A sum that is not a number is none of the shift's business.
        return ~is_whole & jnp.isfinite(trace) & (n_shifts < MAX_SHIFTS)

    def shifted_further(tried: tuple[Array, _Factored]) -> tuple[Array, _Factored]:
        n_shifts, factored = tried
        shift = jnp.maximum(least, 10.0 * factored.shift)
        return n_shifts + 1, _Factored(factor(shift), shift)

    none = jnp.zeros((), gram.dtype)
    first = jnp.zeros((), jnp.int32), _Factored(factor(none), none)
    return jax.lax.while_loop(has_failed, shifted_further, first)[1]


class _Iterate(NamedTuple):
    """Conjugate gradients after some iterations; w itself is of no use to anybody."""

    direction: Parts  # Oᵀ w
    residual: EveryWalker
    search: EveryWalker
    product: Float[Array, ""]  # of the residual and the preconditioned one
    n_iterations: Array  # -1 before the preconditioner's own solution


def _conjugate_gradients(
    scores: CentredScores,
    damping: float | Array,
    precondition: Callable[[EveryWalker], EveryWalker],
    rhs: EveryWalker,
) -> _Iterate:
    """From where the preconditioner alone leads on (Saad, Iterative Methods, algorithm 9.1).

    What the preconditioner finds is an iteration of the same loop, number 0: one copy to compile.
    """
    limit = TOLERANCE * jnp.linalg.norm(rhs)

    def is_too_far(now: _Iterate) -> Bool[Array, ""]:
        is_far = (jnp.linalg.norm(now.residual) > limit) & (now.n_iterations < MAX_ITERATIONS)
        return is_far | (now.n_iterations < 0)

    def iterate(now: _Iterate) -> _Iterate:
        transposed = scores.apply_transpose(now.search)
        image = scores.apply(transposed) + damping * now.search
        is_first = now.n_iterations < 0  # as far as the preconditioner says, from nothing
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
