"""Sums, scalings and products of Jacobian blocks, decided by index tables at trace time."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from vmcjob.fwdlap.node import Block, Window, total

Shape = tuple[int, ...]

# Slot pairs that are still merged one by one; more of them, and one uniform block is cheaper.
MAX_PAIRS = 8

# Slots whose products are added up one by one.
FEW_SLOTS = 6


def compress(index: np.ndarray) -> np.ndarray:
    """The same table with every axis along which it is constant cut to length 1."""
    for axis in range(1, index.ndim):
        first = index[(slice(None),) * axis + (slice(0, 1),)]
        if index.shape[axis] > 1 and (index == first).all():
            index = first
    return index


def fill_holes(table: np.ndarray) -> np.ndarray:
    """The table with -1 replaced wherever the rest of its slot agrees on one direction."""
    top = table.max(axis=tuple(range(1, table.ndim)), keepdims=True)
    agree = ((table == top) | (table < 0)).all(axis=tuple(range(1, table.ndim)), keepdims=True)
    return compress(np.where(agree, top, table))


def is_uniform(block: Block) -> bool:
    """Whether all elements share the block's directions."""
    return block.window is None and block.table.size == block.table.shape[0]


def uniform_index(directions: Any, ndim: int) -> np.ndarray:
    """Table of a block whose directions are the same for all elements."""
    return np.asarray(directions, np.int64).reshape(-1, *[1] * ndim)


def directions_of(blocks: Sequence[Block]) -> np.ndarray:
    """All directions along which anything may change, sorted."""
    found = np.unique(np.concatenate([block.table.ravel() for block in blocks]))
    return found[found >= 0]


def restrict(array: Any, window: Window | None, lead: int = 0) -> Any:
    """The part of an array that lies in the window; `lead` axes precede those of the value."""
    if window is None or array.ndim == 0 or array.shape[window.axis + lead] == 1:
        return array
    return lax.slice_in_dim(array, window.start, window.stop, axis=window.axis + lead)


def embed(array: Any, window: Window | None, shape: Shape) -> Any:
    """Zeros of `shape` around an array that lies in the window."""
    if window is None:
        return array
    region = _region(window, shape)
    axis, start, stop = window
    padding = [(0, 0, 0)] * len(shape)
    padding[axis] = (start, shape[axis] - stop, 0)
    return lax.pad(jnp.broadcast_to(array, region), jnp.zeros((), array.dtype), padding)


def _region(window: Window | None, shape: Shape) -> Shape:
    if window is None:
        return shape
    axis, start, stop = window
    return (*shape[:axis], stop - start, *shape[axis + 1 :])


def widen(block: Block, shape: Shape) -> Block:
    """The same block without a window."""
    if block.window is None:
        return block
    axis, start, stop = block.window
    region = list(block.data.shape)
    region[axis + 1] = stop - start
    padding = [(0, 0, 0)] * block.data.ndim
    padding[axis + 1] = (start, shape[axis] - stop, 0)
    data = jnp.broadcast_to(block.data, region)
    index = block.table
    if index.shape[axis + 1] > 1:
        edges = [(low, high) for low, high, _ in padding]
        index = np.pad(index, edges, constant_values=-1)
    return Block(lax.pad(data, jnp.zeros((), data.dtype), padding), index)


def expand(block: Block, shape: Shape) -> Any:
    """The block's data with every axis written out."""
    block = widen(block, shape)
    return jnp.broadcast_to(block.data, (len(block.data), *shape))


def scale(block: Block, factor: Any) -> Block:
    """The block times an array of the value's shape (or a scalar)."""
    return block._replace(data=block.data * restrict(jnp.asarray(factor), block.window))


def compatible(a: Block, b: Block) -> bool:
    """Whether slot by slot both hold the same direction wherever both hold any."""
    if a.window != b.window or len(a.table) != len(b.table):
        return False
    return bool(((a.table == b.table) | (a.table < 0) | (b.table < 0)).all())


def merge(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The same sum with compatible blocks added up."""
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
    """Add blocks to a uniform one that holds all their directions and need not grow for them."""
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


def _joint_table(a: Block, b: Block) -> np.ndarray | None:
    """The table of the sum, slot by slot; None where the slots do not fit together."""
    if not compatible(a, b):
        return None
    if np.array_equal(a.table, b.table):
        return a.table
    table = np.maximum(a.table, b.table)
    # Two slots of one direction, filled from either side, would make squares wrong.
    return None if has_repeats(table) else table


def colliding_slots(a: Block, b: Block) -> list[tuple[int, int]]:
    """Pairs of slots that hold the same direction at some element."""
    same = (a.table[:, None] == b.table[None]) & (a.table[:, None] >= 0)
    hits = same.any(axis=tuple(range(2, same.ndim)))
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(hits), strict=True)]


def collide(a: Block, b: Block) -> bool:
    """Whether some direction may sit in both blocks at one element."""
    if a.window == b.window:
        return bool(colliding_slots(a, b))
    wa, wb = a.window, b.window
    if wa and wb and wa.axis == wb.axis and (wa.stop <= wb.start or wb.stop <= wa.start):
        return False
    return bool(np.intersect1d(directions_of([a]), directions_of([b])).size)


def disjoint(blocks: Sequence[Block], shape: Shape) -> tuple[Block, ...]:
    """The same sum with no direction in two blocks at any element, as squares need it."""
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
    """Move what `b` holds of `a`'s directions into `a`."""
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


def uniform(blocks: Sequence[Block], shape: Shape, directions: Any = None) -> Block:
    """One block in which all elements share the same directions, those that occur by default."""
    if directions is None:
        directions = directions_of(blocks)
    index = uniform_index(directions, len(shape))
    parts = [_spread(widen(block, shape), index) for block in blocks]
    return Block(total(*parts), index)


def _spread(block: Block, index: np.ndarray) -> Any:
    """The block's data along the directions of a uniform index; zero where it has none."""
    directions = index.ravel()
    holds = [np.unique(np.nonzero(block.table == d)[0]) for d in directions]
    parts = []
    for m in range(max((len(slots) for slots in holds), default=0)):
        rows = np.array([slots[m] if m < len(slots) else -1 for slots in holds])
        here = (block.table[rows] == index) & (rows >= 0).reshape(index.shape)
        parts.append(_rows(block.data, rows, here))
    empty = jnp.zeros((len(index), *block.data.shape[1:]), block.data.dtype)
    return total(*parts) if parts else empty


def _rows(data: Any, rows: np.ndarray, here: np.ndarray) -> Any:
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
    return data if padding[0] == (0, 0, 0) else lax.pad(data, zero, padding)


def lookup(block: Block, index: np.ndarray) -> Any:
    """Data of a uniform block along the directions of another table; zero where it has none."""
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
    """sum_d A_d B_d, element by element; None where no direction is shared."""
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


def _sum_slots(a: Any, b: Any) -> Any:
    """The sum of a b over slots. Few are written out: XLA:CPU is slow at a sum within a sum."""
    if len(a) > FEW_SLOTS:
        return jnp.sum(a * b, axis=0)
    return total(*[a[i] * b[i] for i in range(len(a))])


def has_repeats(index: np.ndarray) -> bool:
    """Whether some element has one direction in two slots."""
    ordered = np.sort(index, axis=0)
    return bool(((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)).any())


def local_union(block: Block, shape: Shape, axes: Shape) -> Block | None:
    """The block with as few slots as hold, at each element, all directions met along `axes`.

    Its table is constant along `axes`. None where no direction repeats and most places hold
    one: then the axes themselves can serve as slots.
    """
    lengths = [shape[axis] if axis in axes else n for axis, n in enumerate(block.table.shape[1:])]
    order = [axis + 1 for axis in axes]
    kept = [axis + 1 for axis in range(len(shape)) if axis not in axes]
    spread = np.broadcast_to(block.table, (len(block.table), *lengths))
    flat = spread.transpose([0, *order, *kept]).reshape(-1, *[lengths[a - 1] for a in kept])
    table = _distinct(flat)
    if 2 * len(table) > len(flat) and not has_repeats(flat):
        return None
    table = table.reshape(len(table), *[1 if a in axes else n for a, n in enumerate(lengths)])
    rows = [_gather_direction(block, directions) for directions in table]
    return Block(jnp.stack(jnp.broadcast_arrays(*rows)), compress(table), block.window)


def _distinct(table: np.ndarray) -> np.ndarray:
    """The distinct directions along the leading axis, sorted, -1 behind where there are fewer."""
    missing = np.iinfo(table.dtype).max
    ordered = np.sort(np.where(table < 0, missing, table), axis=0)
    repeats = np.concatenate([np.zeros_like(ordered[:1], bool), ordered[1:] == ordered[:-1]])
    ordered = np.sort(np.where(repeats, missing, ordered), axis=0)
    filled = int((ordered != missing).sum(axis=0).max(initial=1))
    return np.where(ordered == missing, -1, ordered)[: max(filled, 1)]


def _gather_direction(block: Block, directions: np.ndarray) -> Any:
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
    """The block itself, or with fewer slots where an element has one direction twice."""
    if not has_repeats(block.table):
        return block
    union = local_union(block, shape, ())
    return block if union is None else union
