"""Arrays that are computed once and kept, where XLA:CPU would compute them again for each use."""

from typing import TypeVar

import jax

Tree = TypeVar("Tree")


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
