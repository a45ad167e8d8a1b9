"""Scores ∂ log|ψ|/∂θ of walkers, as a pair of products or as a matrix."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LogPsi, Params

Vector = Float[jax.Array, " param"]
PerWalker = Float[jax.Array, " walker"]
Result = TypeVar("Result")

# Bytes of one chunk of scores while they are computed; forward passes need about as much again.
CHUNK_BYTES = 256 << 20
# Fewest chunks if scores do not fit one chunk: little memory beside all scores.
MIN_CHUNKS = 8


class Scores(NamedTuple):
    """The scores O of the walkers of one device as a pair of linear maps."""

    apply: Callable[[Vector], PerWalker]  # v -> O v, not centred
    apply_transpose: Callable[[PerWalker], Vector]  # w -> Oᵀ w, this device's walkers only


def no_direction(params: Params) -> Vector:
    """The zero vector in the space of parameters."""
    flat = jax.eval_shape(lambda tree: ravel_pytree(tree)[0], params)
    return jnp.zeros(flat.shape, flat.dtype)


def lazy_scores(log_psi: LogPsi, params: Params, r: Float[jax.Array, "walker elec 3"]) -> Scores:
    """Scores of a batch, without a matrix.

    One linearization of the batch is used for all products. A product costs about two linear passes
    and the memory of one forward pass.
    """
    flat, unravel = ravel_pytree(params)

    def batch_log_psi(theta: Vector) -> PerWalker:
        return jax.vmap(log_psi, (None, 0))(unravel(theta), r)

    _, jvp = jax.linearize(batch_log_psi, flat)
    transpose = jax.linear_transpose(jvp, flat)
    return Scores(jvp, lambda weights: transpose(weights)[0])


def dense_scores(log_psi: LogPsi, params: Params, r: Float[jax.Array, "walker elec 3"]) -> Scores:
    """Scores of a batch, as products with their matrix: fast if the matrix fits the memory."""
    matrix = score_matrix(log_psi, params, r)
    highest = jax.lax.Precision.HIGHEST
    return Scores(
        lambda v: jnp.matmul(matrix, v, precision=highest),
        lambda weights: jnp.matmul(weights, matrix, precision=highest),
    )


def score_matrix(
    log_psi: LogPsi,
    params: Params,
    r: Float[jax.Array, "walker elec 3"],
) -> Float[jax.Array, "walker param"]:
    """∂ log|ψ|/∂θ of each walker of this device, not centred; computed in chunks of walkers."""
    flat, unravel = ravel_pytree(params)
    gradient = jax.grad(lambda theta, one: log_psi(unravel(theta), one))
    return map_walkers(partial(gradient, flat), r)


def map_walkers(
    function: Callable[[Any], Result], walkers: Any, row_bytes: int = 0, chunk_divisor: int = 1
) -> Result:
    """`vmap(function)(walkers)` in chunks of walkers as large as CHUNK_BYTES allows.

    Args:
        function: of one walker; `Any` is a tree of arrays.
        walkers: the same with an axis of walkers.
        row_bytes: bytes of one walker; if 0, the size of the function's result.
        chunk_divisor: divides the size of chunks.
    """
    n = len(jax.tree.leaves(walkers)[0])
    row_bytes = row_bytes or _bytes(jax.eval_shape(jax.vmap(function), walkers)) // n
    fitting = max(1, CHUNK_BYTES // max(1, row_bytes) // chunk_divisor)
    if fitting >= n:
        return jax.vmap(function)(walkers)
    most = min(fitting, -(-n // MIN_CHUNKS))
    size = _dividing(n, most)
    size = size if 4 * size > most else most  # copies are cheaper than single walkers
    return jax.lax.map(function, walkers, batch_size=size)


def centred_columns(
    matrix: Float[jax.Array, "walker param"], scale: jax.Array | float = 1.0
) -> Float[jax.Array, "walker param"]:
    """Each column minus its mean over all devices, times `scale`; inside pmap.

    A large matrix is replaced chunk by chunk, to avoid a second matrix of its size.
    """
    mean = devices.mean(jnp.mean(matrix, axis=0))
    n = len(matrix)
    if _bytes(matrix) <= CHUNK_BYTES:
        return (matrix - mean) * scale
    size = _dividing(n, -(-n // MIN_CHUNKS))

    def replace(chunk: jax.Array, matrix: jax.Array) -> jax.Array:
        rows = jax.lax.dynamic_slice_in_dim(matrix, chunk * size, size)
        return jax.lax.dynamic_update_slice_in_dim(
            matrix, (rows - mean) * scale, chunk * size, axis=0
        )

    return jax.lax.fori_loop(0, n // size, replace, matrix)


def _bytes(tree: Any) -> int:
    """Bytes of a tree of arrays, or of shapes of arrays."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _dividing(n: int, most: int) -> int:
    """The largest divisor of n up to `most`: a remainder would require a copy of all chunks."""
    return next(size for size in range(most, 0, -1) if n % size == 0)
