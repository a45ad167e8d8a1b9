"""The rule for concatenate: give each block a window at its place and join neighbours."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from vmcjob.fwdlap.cpu import kept
from vmcjob.fwdlap.interpreter import bind, rule_for
from vmcjob.fwdlap.node import Block, Value, Window, blocks_of, laplacian_of, make_node, primal_of
from vmcjob.fwdlap.windows import widen

Shape = tuple[int, ...]


@rule_for("concatenate")
def concatenate(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Give each block a window at its place, without copying the block."""
    axis = eqn.params["dimension"]
    primals = [primal_of(value) for value in inputs]
    out = bind(eqn, primals)[0]
    laplacians = [laplacian_of(value) for value in inputs]
    laplacian = None
    if any(term is not None for term in laplacians):
        filled = [
            jnp.zeros(jnp.shape(p), out.dtype) if term is None else term
            for p, term in zip(primals, laplacians, strict=True)
        ]
        laplacian = bind(eqn, kept(filled))[0]
    blocks, start = [], 0
    for value, primal in zip(inputs, primals, strict=True):
        stop = start + primal.shape[axis]
        for block in blocks_of(value):
            if block.window is not None and block.window.axis == axis:
                low, high = block.window.start + start, block.window.stop + start
                window = Window(axis, low, high)
            else:
                block, window = widen(block, primal.shape), Window(axis, start, stop)
            blocks.append(block._replace(window=window))
        start = stop
    return [make_node(out, _join(blocks, axis, out.shape), laplacian)]


def _join(blocks: list[Block], axis: int, shape: Shape) -> list[Block]:
    """Fuse neighbouring blocks with the same directions into one, such as stacked spin blocks."""
    joined: list[Block] = []
    for block in blocks:
        for i, other in enumerate(joined):
            if _are_neighbours(other, block):
                joined[i] = _fuse(other, block, axis)
                break
        else:
            joined.append(block)
    whole = Window(axis, 0, shape[axis])
    return [b._replace(window=None) if b.window == whole else b for b in joined]


def _are_neighbours(a: Block, b: Block) -> bool:
    if a.window is None or b.window is None or a.window.stop != b.window.start:
        return False
    axis = a.window.axis + 1
    if len(a.table) != len(b.table) or a.data.ndim != b.data.ndim:
        return False
    same = a.table.shape[axis] == 1 == b.table.shape[axis] and np.array_equal(a.table, b.table)
    along = [i for i in range(1, a.data.ndim) if i != axis]
    return same and all(a.data.shape[i] == b.data.shape[i] for i in along)


def _fuse(a: Block, b: Block, axis: int) -> Block:
    parts = []
    for block in (a, b):
        window = block.window or Window(axis, 0, 1)
        shape = list(block.data.shape)
        shape[axis + 1] = window.stop - window.start
        parts.append(jnp.broadcast_to(block.data, shape))
    start = a.window.start if a.window else 0
    stop = b.window.stop if b.window else 0
    data = lax.concatenate(kept(parts), axis + 1)
    return Block(data, a.table, Window(axis, start, stop))
