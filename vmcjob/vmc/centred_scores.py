"""Products with the centred scores O of the walkers of all devices; inside pmap.

Scores of dense layers stay factors (`layers`); each device keeps the factors of its own walkers.
The other scores are a matrix, and each device keeps some of its columns for all walkers. So no
device holds all scores, and each does its part of every product.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LogPsi, Params
from vmcjob.vmc.layers import Factors, Kernel, Leaf, split_gradient
from vmcjob.vmc.scores import CHUNK_BYTES, Vector, centred_columns, map_walkers

HIGHEST = jax.lax.Precision.HIGHEST

# Cost of adding the products of two rows' factors one by one, in multiplications.
SUM_COST = 96

MAX_BANDS = 4  # bands of rows in a product x xᵀ; leaving out the lower part saves three eighths
BAND_ROWS = 128

EveryWalker = Float[Array, " every"]  # all walkers of all devices, on each device
Gram = Float[Array, "every every"]


class Parts(NamedTuple):
    """A vector of parameters, divided as the scores are."""

    columns: Float[Array, " column"]  # this device's columns
    kernels: tuple[Float[Array, "left right"], ...]


@dataclass(frozen=True)
class CentredScores:
    """The matrix O; its rows are the walkers of all devices. All devices have the same kernels.

    Args:
        columns: scores of parameters that are in no kernel.
        kernels: kernels whose scores stay factors.
        factors: factors for this device's walkers; products with them are centred afterwards.
        shapes: shapes of all arrays of parameters.
    """

    columns: Float[Array, "every column"]
    kernels: tuple[Kernel, ...]
    factors: tuple[Factors, ...]
    shapes: tuple[tuple[int, ...], ...]

    def apply(self, parts: Parts) -> EveryWalker:
        """O v."""
        image = devices.total(jnp.matmul(self.columns, parts.columns, precision=HIGHEST))
        if not self.factors:
            return image
        of_kernels = [
            jnp.sum(jnp.matmul(f.a, matrix, precision=HIGHEST) * f.b, axis=(1, 2))
            for f, matrix in zip(self.factors, parts.kernels, strict=True)
        ]
        every = devices.concatenate(sum(of_kernels[1:], of_kernels[0]))
        return image + every - jnp.mean(every)

    def apply_transpose(self, w: EveryWalker) -> Parts:
        """Oᵀ w."""
        columns = jnp.matmul(w, self.columns, precision=HIGHEST)
        if not self.factors:
            return Parts(columns, ())
        own = (w - jnp.mean(w))[devices.own_walkers(len(self.factors[0].a))]
        kernels = [
            jnp.einsum("nki,nko->io", f.a, f.b * own[:, None, None], precision=HIGHEST)
            for f in self.factors
        ]
        return Parts(columns, tuple(devices.total(kernels)))

    def gram(self) -> Gram:
        """O Oᵀ on and above its diagonal; entries below the diagonal are undefined."""
        return self._products(None)

    def gram_of_first(self, n: int) -> Float[Array, "some some"]:
        """O Oᵀ of the first n walkers alone, centred over these."""
        of_factors, of_scores = [], [_product(self.columns[:n], n)]
        for own in self.factors:
            some = Factors(*(devices.concatenate(x)[:n] for x in own))
            if _is_for_factors(own):
                of_factors.append(_products_of_factors(some, some))
            else:
                of_scores.append(_products_of_scores(some, n))
        gram = sum(of_factors, devices.total(sum(of_scores[1:], of_scores[0])))
        gram -= jnp.mean(gram, axis=0)
        return gram - jnp.mean(gram, axis=1, keepdims=True)

    def gram_columns(self, n: int) -> Float[Array, "every some"]:
        """The first n columns of O Oᵀ, minus their mean."""
        columns = self._products(n)
        return columns - jnp.mean(columns, axis=1, keepdims=True)

    def _products(self, n: int | None) -> Float[Array, "every some"]:
        """O Oᵀ as in `gram`, or its first n columns, up to one vector that all columns share."""
        of_factors, of_scores = [], [_product(self.columns, n)]
        for own in self.factors:
            every = Factors(*map(devices.concatenate, own))
            if _is_for_factors(own):
                some = Factors(*(x[:n] for x in every))
                of_factors.append(_products_of_factors(own, some))
            else:
                of_scores.append(_products_of_scores(every, n))
        gram = devices.total(sum(of_scores[1:], of_scores[0]))
        if not of_factors:
            return gram
        # Added on each device first, so that one array is sent, however many kernels there are.
        every = devices.concatenate(sum(of_factors[1:], of_factors[0]))
        every -= jnp.mean(every, axis=0)
        return gram + every - jnp.mean(every, axis=1, keepdims=True)

    def split(self, vector: Vector) -> Parts:
        """The parts of a vector."""
        leaves = _cut(vector, self.shapes)
        kernels = tuple(kernel.to_matrix(leaves[kernel.leaf]) for kernel in self.kernels)
        rest = _flat([leaf for i, leaf in enumerate(leaves) if i not in self._in_kernels])
        n_own = self.columns.shape[1]
        padded = jnp.pad(rest, (0, n_own * devices.total(1) - len(rest)))
        own = jax.lax.dynamic_slice_in_dim(padded, devices.index() * n_own, n_own)
        return Parts(own, kernels)

    def join(self, parts: Parts) -> Vector:
        """The inverse of `split`."""
        rest = devices.concatenate(parts.columns)
        shapes = [shape for i, shape in enumerate(self.shapes) if i not in self._in_kernels]
        leaves = _cut(rest, shapes)
        for kernel, matrix in zip(self.kernels, parts.kernels, strict=True):
            leaves.insert(kernel.leaf, kernel.to_leaf(matrix))
        return _flat(leaves)

    @property
    def _in_kernels(self) -> set[int]:
        return {kernel.leaf for kernel in self.kernels}


def centred_scores(
    log_psi: LogPsi,
    params: Params,
    r: Float[Array, "walker elec 3"],
    scale: Array,
    chunk_divisor: int = 1,
) -> CentredScores:
    """Centred scores of this device's walkers r and all other walkers, times `scale`."""
    gradient = split_gradient(log_psi, params, r[0])

    def of_one(one: Float[Array, "elec 3"]) -> tuple[Vector, list[Factors]]:
        rest, factors = gradient.evaluate(params, one)
        return _flat(rest), factors

    rows, factors = map_walkers(of_one, r, chunk_divisor=chunk_divisor)
    return CentredScores(
        devices.rows_to_columns(centred_columns(rows, scale)),
        gradient.kernels,
        tuple(Factors(f.a, f.b * scale) for f in factors),
        tuple(leaf.shape for leaf in jax.tree.leaves(params)),
    )


def _product(x: Float[Array, "every column"], n: int | None) -> Float[Array, "every some"]:
    """x xᵀ as in `_upper_product`, or its first n columns."""
    return _upper_product(x) if n is None else jnp.matmul(x, x[:n].T, precision=HIGHEST)


def _upper_product(x: Float[Array, "every column"]) -> Gram:
    """x xᵀ on and above its diagonal, in bands of rows that begin at the diagonal."""
    n_rows = -(-len(x) // max(2, min(MAX_BANDS, len(x) // BAND_ROWS)))

    def band(first: int) -> Float[Array, "row every"]:
        product = jnp.matmul(x[first : first + n_rows], x[first:].T, precision=HIGHEST)
        return jnp.pad(product, ((0, 0), (first, 0)))

    return jnp.concatenate([band(first) for first in range(0, len(x), n_rows)])


def _is_for_factors(own: Factors) -> bool:
    """Whether products of a kernel's scores are cheaper by its factors."""
    n_rows = own.a.shape[1]
    n_left, n_right = (factor.shape[2] for factor in own)
    return n_rows**2 * (n_left + n_right + SUM_COST) < n_left * n_right


def _products_of_factors(own: Factors, some: Factors) -> Float[Array, "walker some"]:
    """Σ_kl (a_k · a'_l) (b_k · b'_l) of this device's walkers with some walkers, not centred."""
    n_some, n_rows, _ = some.a.shape
    if n_rows == 1:
        a, b = (
            jnp.matmul(x[:, 0], y[:, 0].T, precision=HIGHEST)
            for x, y in zip(own, some, strict=True)
        )
        return a * b

    def of_one(one: Factors) -> Float[Array, " some"]:
        a, b = (
            jnp.einsum("ki,nli->kln", x, y, precision=HIGHEST)
            for x, y in zip(one, some, strict=True)
        )
        return jnp.sum(a * b, axis=(0, 1))

    return map_walkers(of_one, own, 2 * n_rows**2 * n_some * own.a.dtype.itemsize)


def _products_of_scores(every: Factors, n: int | None) -> Float[Array, "every some"]:
    """Products of centred scores for some rows of a kernel's matrix, as in `_product`.

    The rows are treated in chunks. The sum over all devices is the product for the whole kernel.
    """
    n_every, n_rows, n_left = every.a.shape
    row_bytes = n_every * every.b.shape[2] * every.b.dtype.itemsize
    n_own = -(-n_left // devices.total(1))
    n_blocks = -(-n_own * row_bytes // CHUNK_BYTES)
    n_own = -(-n_own // n_blocks) * n_blocks
    padded = jnp.pad(every.a, ((0, 0), (0, 0), (0, n_own * devices.total(1) - n_left)))
    own = jax.lax.dynamic_slice_in_dim(padded, devices.index() * n_own, n_own, axis=2)
    blocks = jnp.moveaxis(own.reshape(n_every, n_rows, n_blocks, -1), 2, 0)

    def add(found: Array, block: Float[Array, "every row left"]) -> tuple[Array, None]:
        scores = jnp.einsum("nki,nko->nio", block, every.b, precision=HIGHEST)
        scores = scores.reshape(n_every, -1)
        return found + _product(scores - jnp.mean(scores, axis=0), n), None

    none = jnp.zeros((n_every, n or n_every), own.dtype)
    return jax.lax.scan(add, none, blocks)[0]


def _flat(leaves: Sequence[Leaf]) -> Vector:
    return jnp.concatenate([leaf.ravel() for leaf in leaves]) if leaves else jnp.zeros(0)


def _cut(vector: Vector, shapes: Sequence[tuple[int, ...]]) -> list[Leaf]:
    """The inverse of `_flat`; padding at the end is dropped."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = jnp.split(vector, ends)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]
