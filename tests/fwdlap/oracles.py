"""The slow twin: value, Jacobian and Laplacian by JAX's own second derivatives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vmcjob import fwdlap


def exact(fun: Callable[[jax.Array], Any], x: jax.Array) -> tuple[Any, Any, Any]:
    """(value, Jacobian with the direction axis first, Laplacian) of `fun` at `x`, any pytree.

    Two derivatives along each direction, forward over forward: loops without a reverse rule have
    an oracle too, and a Hessian's other elements are not computed.
    """
    flat = x.reshape(-1)

    def of_flat(y: jax.Array) -> Any:
        return fun(y.reshape(x.shape))

    def along(direction: jax.Array) -> tuple[Any, Any, Any]:
        def first(y: jax.Array) -> tuple[Any, Any]:
            return jax.jvp(of_flat, (y,), (direction,))

        (value, gradient), (_, second) = jax.jvp(first, (flat,), (direction,))
        return value, gradient, second

    value, gradient, second = jax.vmap(along)(jnp.eye(flat.size, dtype=flat.dtype))
    return jax.tree.map(lambda v: v[0], value), gradient, jax.tree.map(_sum_floats, second)


def _sum_floats(of_directions: jax.Array) -> jax.Array:
    """The sum over directions; integers have no derivatives to add."""
    if of_directions.dtype == jax.dtypes.float0:
        return of_directions[0]
    return jnp.sum(of_directions, axis=0)


def assert_close(got: Any, expected: Any, rtol: float = 1e-9) -> None:
    """Equality relative to the largest entry of each array: a cancellation has no scale."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        scale = float(np.max(np.abs(b), initial=0.0))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(scale, 1e-300))


def check(
    fun: Callable[[jax.Array], Any],
    x: jax.Array,
    rtol: float = 1e-9,
    twin: Callable[[jax.Array], Any] | None = None,
) -> None:
    """Ours and the oracle, value, Jacobian and Laplacian, in one compilation.

    The oracle is asked about `twin`, if there is one: the same function, written otherwise.
    """

    @jax.jit
    def both(x: jax.Array) -> Any:
        return fwdlap.derivatives(fun)(x), exact(twin or fun, x)

    got, expected = both(x)
    float_leaves = [jnp.issubdtype(v.dtype, jnp.inexact) for v in jax.tree.leaves(expected[0])]
    assert_close(got[0], expected[0], rtol)
    for mine, oracle in zip(got[1:], expected[1:], strict=True):
        pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(oracle), float_leaves, strict=True)
        kept = [(a, b) for a, b, is_float in pairs if is_float]
        assert_close([a for a, _ in kept], [b for _, b in kept], rtol)
