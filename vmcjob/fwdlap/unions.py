"""Blocks with fewer slots, if directions repeat along their axes."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Inexact, Int

from vmcjob.fwdlap.node import Block, total
from vmcjob.fwdlap.tables import compress, distinct, has_repeats

Shape = tuple[int, ...]


def local_union(block: Block, shape: Shape, axes: Shape) -> Block | None:
    """The block with the fewest slots that hold, at each element, all directions along `axes`.

    Its table is constant along `axes`. None if no direction repeats and most places hold a
    direction: then the axes themselves can become slots.
    """
    lengths = [shape[axis] if axis in axes else n for axis, n in enumerate(block.table.shape[1:])]
    order = [axis + 1 for axis in axes]
    kept = [axis + 1 for axis in range(len(shape)) if axis not in axes]
    spread = np.broadcast_to(block.table, (len(block.table), *lengths))
    flat = spread.transpose([0, *order, *kept]).reshape(-1, *[lengths[a - 1] for a in kept])
    table = distinct(flat)
    if 2 * len(table) > len(flat) and not has_repeats(flat):
        return None
    table = table.reshape(len(table), *[1 if a in axes else n for a, n in enumerate(lengths)])
    rows = [_gather_direction(block, directions) for directions in table]
    return Block(jnp.stack(jnp.broadcast_arrays(*rows)), compress(table), block.window)


def _gather_direction(block: Block, directions: Int[np.ndarray, "..."]) -> Inexact[Array, "..."]:
    """The block's data along one direction per element."""
    parts = []
    for data, table in zip(block.data, block.table, strict=True):
        here = (table == directions) & (table >= 0)
        if here.all():
            parts.append(data)
        elif here.any():
            parts.append(jnp.where(here, data, jnp.zeros((), data.dtype)))
    if not parts:
        return jnp.zeros(block.data.shape[1:], block.data.dtype)
    return total(*parts)


def settle(block: Block, shape: Shape) -> Block:
    """The block, with fewer slots if an element has one direction twice."""
    if not has_repeats(block.table):
        return block
    union = local_union(block, shape, ())
    return block if union is None else union
