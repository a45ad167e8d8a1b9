"""Arrays that are computed once and kept, where XLA:CPU would compute them again for each use."""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Shaped

Tree = TypeVar("Tree")

MANY_USES = 8  # for which a number is better read again than computed again


def kept(tree: Tree) -> Tree:
    """The same arrays, each computed before anything that it is used for; on CPUs only.

    XLA:CPU puts whatever is done element by element into the loops of all that use it. Where such a
    loop is a concatenation or a sum, it then goes through all of it number by number, instead of
    sixteen at a time: a fifth of a pass of a small network was one tanh in a concatenation.

    XLA drops these barriers before it puts loops together, unless it is told not to by
    `vmcjob.run.startup`; without that, what is kept is kept in vain, and nothing is wrong.
    """
    if jax.default_backend() != "cpu":
        return tree
    return jax.tree.map(jax.lax.optimization_barrier, tree)


def kept_for(array: Shaped[Array, "..."], shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    """The array, kept if a shape that it is spread out over uses each number of it many times."""
    return kept(array) if 1 < array.size <= np.prod(shape) // MANY_USES else array


def kept_in_order(array: Any, order: Sequence[int]) -> Any:
    """The array with its axes in another order, also in memory; on CPUs only, elsewhere by name.

    XLA:CPU would make one loop of this and of whatever reshapes the result. Where axes are put
    together it then divides for each number to find out where it was, and takes four times as long.
    What is known when it compiles, a NumPy array, it turns by itself.
    """
    if jax.default_backend() != "cpu" or isinstance(array, np.ndarray):
        return array.transpose(order)
    if [*order] == [*range(array.ndim)]:
        return kept(array)
    rows = Layout(tuple(range(array.ndim)))
    return kept(with_layout_constraint(kept(array).transpose(order), rows))
