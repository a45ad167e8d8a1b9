"""Sums, scalings and products of Jacobian blocks, planned from index tables at trace time."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Inexact, Int

from vmcjob.fwdlap.cpu import kept, kept_for, sum_of_rows
from vmcjob.fwdlap.node import Block, total
from vmcjob.fwdlap.tables import compress, has_repeats, uniform_index
from vmcjob.fwdlap.windows import embed, widen

Shape = tuple[int, ...]

# Largest number of slot pairs that are merged one by one; above it, one uniform block is cheaper.
MAX_PAIRS = 8

FEW_SLOTS = 6  # largest number of products that are added one by one


def is_uniform(block: Block) -> bool:
    """Whether all elements of the block have the same directions."""
    return block.window is None and block.table.size == block.table.shape[0]


def directions_of(blocks: Sequence[Block]) -> Int[np.ndarray, " direction"]:
    """All directions of the blocks, sorted."""
    found = np.unique(np.concatenate([block.table.ravel() for block in blocks]))
    return found[found >= 0]


def compatible(a: Block, b: Block) -> bool:
    """Whether each slot holds the same direction in both blocks, wherever neither slot is empty."""
    if a.window != b.window or len(a.table) != len(b.table):
        return False
    return bool(((a.table == b.table) | (a.table < 0) | (b.table < 0)).all())


def merge(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks with the same sum, with compatible blocks added together."""
    merged: list[Block] = []
    for block in blocks:
        for i, other in enumerate(merged):
            table = _joint_table(other, block)
            if table is not None:
                merged[i] = Block(other.data + block.data, table, block.window)
                break
        else:
            merged.append(block)
    return tuple(_absorb(merged))


def _absorb(blocks: list[Block]) -> list[Block]:
    """Add blocks to a uniform block, if it holds all their directions and need not grow."""
    host = next((i for i, b in enumerate(blocks) if is_uniform(b) and len(b.data) > 1), None)
    if host is None or len(blocks) == 1:
        return blocks
    big = blocks[host]
    known = directions_of([big])
    rest, data = [], big.data
    for block in blocks[:host] + blocks[host + 1 :]:
        shape = big.data.shape[1:]
        fits = block.window is None and np.isin(directions_of([block]), known).all()
        if fits and np.broadcast_shapes(block.data.shape[1:], shape) == shape:
            data = data + _spread(block, big.table)
        else:
            rest.append(block)
    return [big._replace(data=data), *rest]


def _joint_table(a: Block, b: Block) -> Int[np.ndarray, "slot ..."] | None:
    """The table of the sum of two blocks, slot by slot; None if the slots do not match."""
    if not compatible(a, b):
        return None
    if np.array_equal(a.table, b.table):
        return a.table
    table = np.maximum(a.table, b.table)
    # If one direction were in two slots, each filled from one side, squares would be wrong.
    return None if has_repeats(table) else table


def colliding_slots(a: Block, b: Block) -> list[tuple[int, int]]:
    """Pairs of slots that hold the same direction at some element."""
    same = (a.table[:, None] == b.table[None]) & (a.table[:, None] >= 0)
    hits = same.any(axis=tuple(range(2, same.ndim)))
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(hits), strict=True)]


def collide(a: Block, b: Block) -> bool:
    """Whether both blocks may hold the same direction at one element."""
    if a.window == b.window:
        return bool(colliding_slots(a, b))
    wa, wb = a.window, b.window
    if wa and wb and wa.axis == wb.axis and (wa.stop <= wb.start or wb.stop <= wa.start):
        return False
    return bool(np.intersect1d(directions_of([a]), directions_of([b])).size)


def disjoint(blocks: Sequence[Block], shape: Shape) -> tuple[Block, ...]:
    """Blocks with the same sum, with no direction in two blocks at any element, for squares."""
    blocks = merge(blocks)
    for i, j in combinations(range(len(blocks)), 2):
        a, b = blocks[i], blocks[j]
        if not collide(a, b):
            continue
        many = is_uniform(a) or is_uniform(b) or len(colliding_slots(a, b)) > MAX_PAIRS
        if many or a.window != b.window:
            return (uniform(blocks, shape),)
        pair = _untangle(a, b)
        rest = [block for k, block in enumerate(blocks) if k not in (i, j)]
        return disjoint([*pair, *rest], shape)
    return tuple(blocks)


def _untangle(a: Block, b: Block) -> tuple[Block, Block]:
    """Move data of `b` along directions of `a` into `a`."""
    a_data, b_data = list(a.data), list(b.data)
    shape = np.broadcast_shapes(a.table.shape[1:], b.table.shape[1:])
    b_table = np.broadcast_to(b.table, (len(b.table), *shape)).copy()
    for i, j in colliding_slots(a, b):
        both = np.broadcast_to(a.table[i] == b.table[j], shape)
        a_data[i] = a_data[i] + jnp.where(both, b_data[j], 0)
        b_data[j] = jnp.where(both, 0, b_data[j])
        b_table[j] = np.where(both, -1, b_table[j])
    a_data = jnp.broadcast_arrays(*a_data)
    b_data = jnp.broadcast_arrays(*b_data)
    return (
        Block(jnp.stack(a_data), a.table, a.window),
        Block(jnp.stack(b_data), compress(b_table), b.window),
    )


def uniform(
    blocks: Sequence[Block], shape: Shape, directions: Int[np.ndarray, " direction"] | None = None
) -> Block:
    """One block in which all elements have the same directions, by default all that occur."""
    if directions is None:
        directions = directions_of(blocks)
    index = uniform_index(directions, len(shape))
    parts = [_spread(widen(block, shape), index) for block in blocks]
    return Block(total(*parts), index)


def _spread(
    block: Block, index: Int[np.ndarray, "direction ..."]
) -> Inexact[Array, "direction ..."]:
    """The block's data along the directions of a uniform index; zero for missing directions."""
    directions = index.ravel()
    holds = [np.unique(np.nonzero(block.table == d)[0]) for d in directions]
    parts = []
    for m in range(max((len(slots) for slots in holds), default=0)):
        rows = np.array([slots[m] if m < len(slots) else -1 for slots in holds])
        here = (block.table[rows] == index) & (rows >= 0).reshape(index.shape)
        parts.append(_rows(block.data, rows, here))
    empty = jnp.zeros((len(index), *block.data.shape[1:]), block.data.dtype)
    return total(*parts) if parts else empty


def _rows(
    data: Inexact[Array, "slot ..."],
    rows: Int[np.ndarray, " row"],
    here: Bool[np.ndarray, "row ..."],
) -> Inexact[Array, "row ..."]:
    """`where(here, data[rows], 0)` along the leading axis, as cheaply as the pattern allows."""
    held = np.nonzero(rows >= 0)[0]
    low, high = int(held[0]), int(held[-1]) + 1
    padding = [(low, len(rows) - high, 0), *[(0, 0, 0)] * (data.ndim - 1)]
    rows, here = rows[low:high], here[low:high]
    zero = jnp.zeros((), data.dtype)
    n, k = len(rows), len(data)
    if n % k == 0 and (rows == np.arange(n) % k).all():
        tiled = jnp.broadcast_to(data[None], (n // k, *data.shape))
        data = tiled.reshape(n, *data.shape[1:])
    else:
        data = jnp.take(data, np.maximum(rows, 0), axis=0)
    data = data if here.all() else jnp.where(here, data, zero)
    return data if padding[0] == (0, 0, 0) else kept(lax.pad(kept(data), zero, padding))


def lookup(block: Block, index: Int[np.ndarray, "slot ..."]) -> Inexact[Array, "slot ..."]:
    """Data of a uniform block along another table's directions; zero for missing directions."""
    directions = block.table.ravel()
    order = np.argsort(directions)
    place = np.clip(np.searchsorted(directions, index, sorter=order), 0, len(directions) - 1)
    rows = order[place]
    here = directions[rows] == index
    shape = np.broadcast_shapes(block.data.shape[1:], rows.shape[1:])
    data = jnp.broadcast_to(block.data, (len(block.data), *shape))
    taken = jnp.take_along_axis(data, jnp.asarray(rows), axis=0)
    return taken if here.all() else jnp.where(here, taken, 0)


def inner(left: Sequence[Block], right: Sequence[Block], shape: Shape) -> Any:
    """sum_d A_d B_d, element by element; None if no direction is shared."""
    return total(*[_inner(a, b, shape) for a in left for b in right])


def _inner(a: Block, b: Block, shape: Shape) -> Any:
    if compatible(a, b):
        return embed(_sum_slots(a.data, b.data), a.window, shape)
    if not collide(a, b):
        return None
    if a.window != b.window:
        return _inner(widen(a, shape), widen(b, shape), shape)
    if is_uniform(a) and not is_uniform(b):
        return jnp.sum(lookup(a, b.table) * b.data, axis=0)
    if is_uniform(b) and not is_uniform(a):
        return jnp.sum(lookup(b, a.table) * a.data, axis=0)
    pairs = colliding_slots(a, b)
    if len(pairs) <= MAX_PAIRS:
        terms = [jnp.where(a.table[i] == b.table[j], a.data[i] * b.data[j], 0) for i, j in pairs]
        return embed(total(*terms), a.window, shape)
    shared = np.intersect1d(directions_of([a]), directions_of([b]))
    u, v = uniform([a], shape, shared), uniform([b], shape, shared)
    return jnp.sum(u.data * v.data, axis=0)


def _sum_slots(
    a: Inexact[Array, "slot ..."], b: Inexact[Array, "slot ..."]
) -> Inexact[Array, "..."]:
    """The sum of a b over slots; a short one is written out."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = kept_for(a, shape), kept_for(b, shape)
    if len(a) <= FEW_SLOTS:
        return total(*[a[i] * b[i] for i in range(len(a))])
    return sum_of_rows(a * b)
