"""Rules that are right for every primitive: push each direction through the primitive."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Inexact, Int, Shaped

from vmcjob.fwdlap.interpreter import bind, rule_for
from vmcjob.fwdlap.node import Block, Node, Value, is_inexact, make_node, primal_of, total
from vmcjob.fwdlap.sparsity import directions_of, uniform
from vmcjob.fwdlap.tables import uniform_index
from vmcjob.fwdlap.windows import expand

Arrays = tuple[jax.Array, ...]


def stack_directions(nodes: Sequence[Node]) -> tuple[Int[np.ndarray, " direction"], Arrays]:
    """The directions that occur in any of the nodes, and every node's Jacobian along them."""
    blocks = [block for node in nodes for block in node.blocks]
    if not blocks:
        return np.zeros(0, np.int64), ()
    directions = directions_of(blocks)
    return directions, tuple(dense_jacobian(node, directions) for node in nodes)


def dense_jacobian(
    node: Node, directions: Int[np.ndarray, " direction"]
) -> Shaped[Array, "direction ..."]:
    """The Jacobian along given directions, every axis written out."""
    shape = node.primal.shape
    if not node.blocks:
        return jnp.zeros((len(directions), *shape), node.primal.dtype)
    return expand(uniform(node.blocks, shape, directions), shape)


def dense_laplacian(node: Node) -> Shaped[Array, "..."]:
    """The Laplacian as an array; zeros if it is known to be zero."""
    return jnp.zeros_like(node.primal) if node.laplacian is None else node.laplacian


def uniform_blocks(
    data: Inexact[Array, "direction ..."] | None, directions: Int[np.ndarray, " direction"]
) -> tuple[Block, ...]:
    """A dense Jacobian along given directions as a tuple of blocks; empty without directions."""
    if data is None or not len(directions):
        return ()
    return (Block(data, uniform_index(directions, data.ndim - 1)),)


@rule_for("*")
def by_jvp_of_jvp(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Outputs of any equation by forward mode over forward mode."""
    return differentiate_twice(lambda *arrays: bind(eqn, arrays), inputs)


def differentiate_twice(fun: Callable[..., Sequence[Any]], inputs: list[Value]) -> list[Value]:
    """Value, Jacobian and Laplacian of any function of arrays.

        J' = f'(x) J        L' = f'(x) L + sum_d f''(x)[J_d, J_d]

    Outputs that cannot carry a derivative are returned as bare arrays.
    """
    live = [i for i, value in enumerate(inputs) if isinstance(value, Node)]
    nodes = [inputs[i] for i in live]
    outputs, smooth_part, smooth = _smooth_part(fun, inputs, live)
    if not smooth:
        return outputs
    directions, jacobians, laplacians = _push(smooth_part, nodes, len(smooth))
    for i, jacobian, laplacian in zip(smooth, jacobians, laplacians, strict=True):
        outputs[i] = make_node(outputs[i], uniform_blocks(jacobian, directions), laplacian)
    return outputs


def differentiate_once(fun: Callable[..., Sequence[Any]], inputs: list[Value]) -> list[Value]:
    """Value, Jacobian and Laplacian of a function whose second derivative vanishes."""
    live = [i for i, value in enumerate(inputs) if isinstance(value, Node)]
    nodes = [inputs[i] for i in live]
    outputs, smooth_part, smooth = _smooth_part(fun, inputs, live)
    if not smooth:
        return outputs
    primals = tuple(node.primal for node in nodes)

    def push(tangents: Arrays) -> Arrays:
        return jax.jvp(smooth_part, primals, tangents)[1]

    directions, stacked = stack_directions(nodes)
    jacobians = jax.vmap(push)(stacked) if len(directions) else (None,) * len(smooth)
    laplacians: Sequence[Any] = (None,) * len(smooth)
    if any(node.laplacian is not None for node in nodes):
        laplacians = push(tuple(dense_laplacian(node) for node in nodes))
    for i, jacobian, laplacian in zip(smooth, jacobians, laplacians, strict=True):
        outputs[i] = make_node(outputs[i], uniform_blocks(jacobian, directions), laplacian)
    return outputs


def _smooth_part(
    fun: Callable[..., Sequence[Any]], inputs: list[Value], live: list[int]
) -> tuple[list[Any], Callable[..., Arrays], list[int]]:
    """All outputs, a function with differentiable outputs only, and the indices of these outputs.

    The function takes the inputs `live`; the other inputs keep their present values.
    """
    bare = [primal_of(value) for value in inputs]
    outputs = list(fun(*bare))
    smooth = [i for i, out in enumerate(outputs) if is_inexact(out)]

    def restricted(*arrays: jax.Array) -> Arrays:
        filled = list(bare)
        for i, array in zip(live, arrays, strict=True):
            filled[i] = array
        out = fun(*filled)
        return tuple(out[i] for i in smooth)

    return outputs, restricted, smooth


def _push(fun: Callable[..., Arrays], nodes: list[Node], n_out: int) -> tuple[Any, list, list]:
    primals = tuple(node.primal for node in nodes)

    def first(tangents: Arrays) -> Arrays:
        return jax.jvp(fun, primals, tangents)[1]

    def both(tangents: Arrays) -> tuple[Arrays, Arrays]:
        def along(*arrays: jax.Array) -> Arrays:
            return jax.jvp(fun, arrays, tangents)[1]

        return jax.jvp(along, primals, tangents)

    jacobians: list[Any] = [None] * n_out
    curvatures: list[Any] = [None] * n_out
    slopes: list[Any] = [None] * n_out
    directions, stacked = stack_directions(nodes)
    if len(directions):
        jacobians, second = map(list, jax.vmap(both)(stacked))
        curvatures = [jnp.sum(term, axis=0) for term in second]
    if any(node.laplacian is not None for node in nodes):
        slopes = list(first(tuple(dense_laplacian(node) for node in nodes)))
    laplacians = [total(s, c) for s, c in zip(slopes, curvatures, strict=True)]
    return directions, jacobians, laplacians
