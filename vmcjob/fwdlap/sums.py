"""Rules for sums and extrema over axes. Axes with directions of their own become slots."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from vmcjob.fwdlap.cpu import MANY_TERMS, kept, sum_over
from vmcjob.fwdlap.interpreter import bind, rule_for
from vmcjob.fwdlap.node import Block, Value, make_node
from vmcjob.fwdlap.sparsity import merge
from vmcjob.fwdlap.tables import fill_holes
from vmcjob.fwdlap.unions import local_union, settle
from vmcjob.fwdlap.windows import scale

Axes = tuple[int, ...]


@rule_for("reduce_sum")
def reduce_sum(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Sum elements that share their directions; turn other axes into slots without summing."""
    (node,) = inputs
    shape, axes = node.primal.shape, tuple(map(int, eqn.params["axes"]))
    out = bind(eqn, [node.primal])[0]
    laplacian = node.laplacian
    if laplacian is not None:
        is_long = np.prod([shape[axis] for axis in axes]) >= MANY_TERMS
        laplacian = bind(eqn, [kept(laplacian) if is_long else laplacian])[0]
    blocks = [_sum_block(block, shape, axes) for block in node.blocks]
    return [make_node(out, merge([settle(b, out.shape) for b in blocks]), laplacian)]


@rule_for("reduce_max", "reduce_min")
def reduce_to_extremum(eqn: Any, inputs: list[Value]) -> list[Value]:
    """The derivatives of the extreme element; of several extreme elements their mean, as in JAX."""
    (node,) = inputs
    shape, axes = node.primal.shape, tuple(map(int, eqn.params["axes"]))
    out = bind(eqn, [node.primal])[0]
    extreme = (node.primal == jnp.expand_dims(out, axes)).astype(out.dtype)
    weight = extreme / jnp.sum(extreme, axis=axes, keepdims=True)
    laplacian = None if node.laplacian is None else jnp.sum(weight * node.laplacian, axis=axes)
    blocks = [_sum_block(scale(block, weight), shape, axes) for block in node.blocks]
    return [make_node(out, merge([settle(b, out.shape) for b in blocks]), laplacian)]


def _sum_block(block: Block, shape: Axes, axes: Axes) -> Block:
    window = block.window
    if window is not None:
        length = window.stop - window.start
        shape = tuple(length if i == window.axis else n for i, n in enumerate(shape))
        if window.axis in axes:
            window = None
        else:
            window = window._replace(axis=window.axis - sum(axis < window.axis for axis in axes))
    block, varying = align(block, shape, axes)
    summed = tuple(axis for axis in axes if axis not in varying)
    data = block.data
    repeats = 1
    for axis in summed:
        repeats *= shape[axis] if data.shape[axis + 1] == 1 else 1
    written = tuple(axis + 1 for axis in summed if data.shape[axis + 1] > 1)
    data = sum_over(data, written) if written else data
    data = data * repeats if repeats > 1 else data
    data = _axes_to_slots(data, shape, varying, axes)
    return Block(data, fill_holes(_axes_to_slots(block.table, shape, varying, axes)), window)


def align(block: Block, shape: Axes, axes: Axes) -> tuple[Block, Axes]:
    """The block, prepared for a sum over `axes`, and the axes that must become slots.

    If all directions along the axes differ, the axes become slots and nothing is summed. If
    directions repeat, slots are first assigned again, so that repeated directions share one.
    """
    varying = tuple(axis for axis in axes if block.table.shape[axis + 1] > 1)
    union = local_union(block, shape, varying) if varying else None
    return (block, varying) if union is None else (union, ())


def _axes_to_slots(array: Any, shape: Axes, varying: Axes, axes: Axes) -> Any:
    """Turn the axes `varying` into slots and drop the other `axes`.

    Slots are ordered (varying axes..., old slots), so that electron-major order is kept.
    """
    lengths = list(array.shape)
    for axis in varying:
        lengths[axis + 1] = shape[axis]
    library = np if isinstance(array, np.ndarray) else jnp
    array = library.broadcast_to(array, lengths)
    left = [axis for axis in range(len(shape)) if axis not in axes]
    dropped = [axis for axis in axes if axis not in varying]
    order = [axis + 1 for axis in varying] + [0] + [axis + 1 for axis in (*dropped, *left)]
    n_slots = lengths[0] * int(np.prod([shape[axis] for axis in varying], dtype=int))
    return array.transpose(order).reshape(n_slots, *[lengths[axis + 1] for axis in left])
