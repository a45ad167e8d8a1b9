"""Layouts of arrays and loops for XLA:CPU; on other devices plain operations with the same result.

This is the only module that asks for the kind of device.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Shaped

Tree = TypeVar("Tree")

MANY_USES = 8  # uses of a number from which on reading it again is faster than computing it again
MANY_TERMS = 8  # smallest number of terms of a sum for which a product is faster
MANY_ROWS = 32  # a sum of more terms over the first axis is split by XLA:CPU into two sums


def is_cpu() -> bool:
    """Whether JAX computes on CPUs."""
    return jax.default_backend() == "cpu"


def kept(tree: Tree) -> Tree:
    """Optimization barriers around the arrays, so that each is computed first; on CPUs only.

    XLA:CPU moves elementwise operations into the loop of each of their uses. In a concatenation or
    a sum, such a loop then handles one number at a time instead of sixteen. In a small network, one
    tanh inside a concatenation took a fifth of a pass.

    XLA removes these barriers before it fuses loops, unless `vmcjob.run.startup` has disabled that.
    Without this setting, `kept` has no effect and results are the same.
    """
    if not is_cpu():
        return tree
    return jax.tree.map(lax.optimization_barrier, tree)


def kept_for(array: Shaped[Array, "..."], shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    """The array, kept if broadcasting to `shape` uses each of its numbers many times."""
    return kept(array) if 1 < array.size <= np.prod(shape) // MANY_USES else array


def kept_in_order(array: Any, order: Sequence[int]) -> Any:
    """The array transposed to `order`, also in memory on CPUs; elsewhere a plain transpose.

    XLA:CPU would fuse the transpose with a reshape of the result into one loop. Where the reshape
    merges axes, this loop divides for each number to find its place, and takes four times as long.
    A NumPy array is known at compile time, and XLA transposes it by itself.
    """
    if not is_cpu() or isinstance(array, np.ndarray):
        return array.transpose(order)
    if [*order] == [*range(array.ndim)]:
        return kept(array)
    rows = Layout(tuple(range(array.ndim)))
    return kept(with_layout_constraint(kept(array).transpose(order), rows))


def elementwise(f: Callable[[Array], Array], x: Array) -> Array:
    """An elementwise function of an array, on CPUs in one loop along all numbers.

    XLA:CPU does not vectorize loops along short axes.
    """
    return kept(f(kept(x.ravel()))).reshape(x.shape)


def tanh(x: Array) -> Array:
    """The hyperbolic tangent, computed once for all its uses."""
    return kept(jnp.tanh(x))


def normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Standard normal deviates as of `jax.random.normal` for one axis, in another shape."""
    return kept(jax.random.normal(key, (math.prod(shape),), dtype)).reshape(shape)


def sum_over(data: Any, axes: tuple[int, ...]) -> Any:
    """The sum over some axes, which keep length 1.

    On CPUs long sums are products with ones. XLA fuses a sum with earlier broadcasts and products,
    and then takes up to ten times as long as for the separate operations.
    """
    lengths = [data.shape[axis] for axis in axes]
    if not is_cpu() or np.prod(lengths) < MANY_TERMS:
        return jnp.sum(data, axis=axes, keepdims=True)
    numbers = ((axes, tuple(range(len(axes)))), ((), ()))
    ones = jnp.ones(lengths, data.dtype)
    out = lax.dot_general(data, ones, numbers, precision=lax.Precision.HIGHEST)
    return jnp.expand_dims(out, axes)


def sum_of_rows(rows: Array) -> Array:
    """The sum over the first axis; on CPUs a long one by halves."""
    if len(rows) <= MANY_ROWS or not is_cpu():
        return jnp.sum(rows, axis=0)
    odd = []
    while len(rows) > 1:
        half = len(rows) // 2
        odd += [rows[-1]] if len(rows) % 2 else []
        rows = rows[:half] + rows[half : 2 * half]
    return sum(odd, rows[0])
