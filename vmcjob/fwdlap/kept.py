"""Arrays that XLA:CPU computes once and keeps in memory, instead of once for each use."""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Shaped

Tree = TypeVar("Tree")

MANY_USES = 8  # uses of a number from which on reading it again is faster than computing it again


def kept(tree: Tree) -> Tree:
    """Optimization barriers around the arrays, so that each is computed first; on CPUs only.

    XLA:CPU moves elementwise operations into the loop of each of their uses. In a concatenation or
    a sum, such a loop then handles one number at a time instead of sixteen. In a small network, one
    tanh inside a concatenation took a fifth of a pass.

    XLA removes these barriers before it fuses loops, unless `vmcjob.run.startup` has disabled that.
    Without this setting, `kept` has no effect and results are the same.
    """
    if jax.default_backend() != "cpu":
        return tree
    return jax.tree.map(jax.lax.optimization_barrier, tree)


def kept_for(array: Shaped[Array, "..."], shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    """The array, kept if broadcasting to `shape` uses each of its numbers many times."""
    return kept(array) if 1 < array.size <= np.prod(shape) // MANY_USES else array


def kept_in_order(array: Any, order: Sequence[int]) -> Any:
    """The array transposed to `order`, also in memory on CPUs; elsewhere a plain transpose.

    XLA:CPU would fuse the transpose with a reshape of the result into one loop. Where the reshape
    merges axes, this loop divides for each number to find its place, and takes four times as long.
    A NumPy array is known at compile time, and XLA transposes it by itself.
    """
    if jax.default_backend() != "cpu" or isinstance(array, np.ndarray):
        return array.transpose(order)
    if [*order] == [*range(array.ndim)]:
        return kept(array)
    rows = Layout(tuple(range(array.ndim)))
    return kept(with_layout_constraint(kept(array).transpose(order), rows))
