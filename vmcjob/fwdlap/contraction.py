"""The rule for dot_general: contract each block separately."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int

from vmcjob.fwdlap.cpu import is_cpu, kept, kept_in_order
from vmcjob.fwdlap.interpreter import bind, rule_for
from vmcjob.fwdlap.node import Block, Value, blocks_of, laplacian_of, make_node, primal_of, total
from vmcjob.fwdlap.sparsity import (
    MAX_PAIRS,
    colliding_slots,
    directions_of,
    is_uniform,
    lookup,
    merge,
    uniform,
)
from vmcjob.fwdlap.sums import align
from vmcjob.fwdlap.tables import fill_holes
from vmcjob.fwdlap.unions import settle
from vmcjob.fwdlap.windows import expand, widen

Axes = tuple[int, ...]

# Largest factor, zeros included, that is cheaper as one for the whole batch than one per element.
SMALL_FACTOR = 1536


class Contraction:
    """The axes of a dot_general, and the contraction of blocks along these axes."""

    def __init__(self, eqn: Any, shapes: tuple[Axes, Axes]):
        (self.contract, self.batch) = eqn.params["dimension_numbers"]
        self.shapes = shapes
        self.options = {
            key: eqn.params[key]
            for key in ("precision", "preferred_element_type")
            if key in eqn.params
        }

    def free(self, side: int) -> list[int]:
        """Axes of one operand that are neither contracted nor batched."""
        taken = (*self.contract[side], *self.batch[side])
        return [axis for axis in range(len(self.shapes[side])) if axis not in taken]

    def ready(self, block: Block) -> Block:
        """The block, kept in memory before a batched product copies it."""
        return block._replace(data=kept(block.data)) if self.batch[0] else block

    def push(self, block: Block, other: Any, side: int) -> Block:
        """The block contracted with the primal of the other operand."""
        contract, batch = self.contract[side], self.batch[side]
        other_contract, other_batch = self.contract[1 - side], self.batch[1 - side]
        block, other, shape = self._without_window(block, other, side)
        block, varying = align(block, shape, tuple(map(int, contract)))
        written = {*contract, *batch}
        lengths = [
            shape[axis] if axis in written else block.data.shape[axis + 1]
            for axis in range(len(shape))
        ]
        data = jnp.broadcast_to(block.data, (len(block.data), *lengths))
        summed = [i for i, axis in enumerate(contract) if axis not in varying]
        moved = [contract.index(axis) for axis in varying]
        own = (
            tuple(contract[i] + 1 for i in summed),
            (*[contract[i] + 1 for i in moved], *[axis + 1 for axis in batch]),
        )
        others = (
            tuple(other_contract[i] for i in summed),
            (*[other_contract[i] for i in moved], *other_batch),
        )
        table = self._index(block.table, shape, varying, side)
        data_first = data.ndim - 1 in own[0]
        if batch and data_first and not varying and self._is_small(side):
            return Block(self._push_whole(data, other, side), table)
        # The summed axes are last in the first factor and first in the second, so that rows stay
        # rows.
        operands = (data, other) if data_first else (other, data)
        pair = (own, others) if data_first else (others, own)
        numbers = ((pair[0][0], pair[1][0]), (pair[0][1], pair[1][1]))
        out = self._product(*operands, numbers)
        out = self._in_order(out, side, data_first, len(varying))
        return Block(out.reshape(-1, *out.shape[len(varying) + 1 :]), table)

    def _product(self, first: Any, second: Any, numbers: Any) -> Any:
        """A dot_general; in a batched product, its factors are copied beforehand.

        XLA would copy them to [..., m, k] and [..., k, n] itself, but slowly, fused with reshapes.
        """
        (summed, other_summed), (batch, other_batch) = numbers
        if not batch:
            return lax.dot_general(first, second, numbers, **self.options)
        free, other_free = (
            [axis for axis in range(x.ndim) if axis not in (*taken, *parts)]
            for x, taken, parts in ((first, summed, batch), (second, other_summed, other_batch))
        )
        first = kept_in_order(first, (*batch, *free, *summed))
        second = kept_in_order(second, (*other_batch, *other_summed, *other_free))
        n, k = len(batch), len(summed)
        parts = tuple(range(n))
        taken = tuple(range(n + len(free), first.ndim)), tuple(range(n, n + k))
        return lax.dot_general(first, second, (taken, (parts, parts)), **self.options)

    def _is_small(self, side: int) -> bool:
        """Whether the other factor is small enough for `_push_whole`; on CPUs only."""
        lengths = [self.shapes[side][axis] for axis in self.batch[side]]
        n_numbers = math.prod([*self.shapes[1 - side], *lengths])
        return is_cpu() and n_numbers <= SMALL_FACTOR

    def _push_whole(self, data: Any, other: Any, side: int) -> Any:
        """The result of `push`, from one product for the whole batch: (slots, batch, free axes).

        XLA:CPU multiplies small matrices at a tenth of its speed, and one product copies no
        Jacobian.
        """
        batch, contract, free = self.batch[side], self.contract[side], self.free(side)
        order = (*self.batch[1 - side], *self.contract[1 - side], *self.free(1 - side))
        wide = _between_zeros(other.transpose(order), len(batch))
        data = kept_in_order(data, (0, *_behind_slots((*free, *batch, *contract))))
        n, end = len(batch), 2 * len(batch)
        summed = tuple(range(1 + len(free), data.ndim))
        taken = (*range(n), *range(end, end + len(contract)))
        out = lax.dot_general(data, wide, ((summed, taken), ((), ())), **self.options)
        axes, first = [*range(1, out.ndim)], len(free)
        own, parts, foreign = axes[:first], axes[first : first + n], axes[first + n :]
        return out.transpose(0, *parts, *((*own, *foreign) if side == 0 else (*foreign, *own)))

    def _in_order(self, out: Any, side: int, data_first: bool, n_varying: int) -> Any:
        """The product of `push` with axes (varying, slots, batch, left free, right free)."""
        n_front = n_varying + len(self.batch[side])
        n_first = 1 + len(self.free(side)) if data_first else len(self.free(1 - side))
        axes = [*range(out.ndim)]
        front, first, second = axes[:n_front], axes[n_front:][:n_first], axes[n_front:][n_first:]
        (slot, *own), foreign = (first, second) if data_first else (second, first)
        free = (*own, *foreign) if side == 0 else (*foreign, *own)
        return out.transpose(*front[:n_varying], slot, *front[n_varying:], *free)

    def _without_window(self, block: Block, other: Any, side: int) -> tuple[Block, Any, Axes]:
        """Block without window, other operand and shape, all cut to the window if it is summed."""
        shape, contract = self.shapes[side], self.contract[side]
        if block.window is None:
            return block, other, shape
        axis, start, stop = block.window
        if axis not in contract:
            return widen(block, shape), other, shape
        place = self.contract[1 - side][contract.index(axis)]
        other = lax.slice_in_dim(other, start, stop, axis=place)
        shape = tuple(stop - start if i == axis else n for i, n in enumerate(shape))
        return block._replace(window=None), other, shape

    def _index(
        self, index: Int[np.ndarray, "slot ..."], shape: Axes, varying: Axes, side: int
    ) -> Int[np.ndarray, "more ..."]:
        """The table of `push`: own axes in place, length 1 for axes of the other operand."""
        own = [*self.batch[side], *self.free(side)]
        order = [axis + 1 for axis in varying] + [0] + [axis + 1 for axis in own]
        dropped = [axis + 1 for axis in self.contract[side] if axis not in varying]
        table = index.transpose(order + dropped)
        table = table.reshape(-1, *[index.shape[axis + 1] for axis in own])
        n_batch = len(self.batch[side])
        foreign = [1] * len(self.free(1 - side))
        batch_shape, free_shape = table.shape[1 : n_batch + 1], table.shape[n_batch + 1 :]
        tail = (*free_shape, *foreign) if side == 0 else (*foreign, *free_shape)
        return fill_holes(table.reshape(len(table), *batch_shape, *tail))

    def cross(self, a: Block, b: Block) -> Any:
        """sum_d f(A_d, B_d) of two blocks; None if they share no direction."""
        blocks = [
            Block(expand(block, shape), widen(block, shape).table)
            for block, shape in zip((a, b), self.shapes, strict=True)
        ]
        few = self._few_pairs(*blocks)
        if few is not None:
            return few
        shared = np.intersect1d(directions_of([a]), directions_of([b]))
        if not shared.size:
            return None
        if not all(is_uniform(block) for block in blocks) or not compatible_slots(*blocks):
            blocks = self._picked(*blocks) or [
                uniform([block], shape, shared)
                for block, shape in zip(blocks, self.shapes, strict=True)
            ]
        summed = [(0, *_behind_slots(axes)) for axes in self.contract]
        batch = [_behind_slots(axes) for axes in self.batch]
        first, second = self._first(summed, batch)
        numbers = ((summed[first], summed[second]), (batch[first], batch[second]))
        out = self._product(blocks[first].data, blocks[second].data, numbers)
        if first == 0:
            return out
        n, n_first = len(batch[0]), len(self.free(1))
        axes = [*range(out.ndim)]
        # Kept in memory; otherwise XLA would swap the factors of the product.
        return kept(out).transpose(*axes[:n], *axes[n + n_first :], *axes[n : n + n_first])

    def _first(self, summed: list[Axes], batch: list[Axes]) -> tuple[int, int]:
        """The sides (0 or 1) of the first and the second factor of `cross`, chosen as in `push`."""
        last = [len(shape) in axes for shape, axes in zip(self.shapes, summed, strict=True)]
        return (1, 0) if batch[0] and last == [False, True] else (0, 1)

    def _picked(self, a: Block, b: Block) -> list[Block] | None:
        """Two blocks with equal slots: the dense one is gathered along the sparse one's table.

        None if the directions depend on more than the summed axes, or if gathering saves nothing.
        """
        for side, (whole, few) in enumerate(((a, b), (b, a))):
            lengths = few.table.shape[1:]
            summed = self.contract[1 - side]
            outside = [n for axis, n in enumerate(lengths) if axis not in summed]
            if not is_uniform(whole) or 2 * len(few.table) > len(whole.table) or max(outside) > 1:
                continue
            shape = [1] * len(self.shapes[side])
            for axis, other in zip(self.contract[side], summed, strict=True):
                shape[axis] = lengths[other]
            order = [other for _, other in sorted(zip(self.contract[side], summed, strict=True))]
            places = [*order, *[axis for axis in range(len(lengths)) if axis not in summed]]
            table = few.table.transpose(0, *[axis + 1 for axis in places]).reshape(-1, *shape)
            picked = Block(kept(lookup(whole, table)), few.table)
            return [picked, few] if side == 0 else [few, picked]
        return None

    def _few_pairs(self, a: Block, b: Block) -> Any:
        """`cross` computed slot by slot, if few pairs of slots share a direction; else None."""
        operands = ((a, 0), (b, 1))
        if is_uniform(a) and is_uniform(b):
            return None
        if any(block.table.shape[c + 1] > 1 for block, s in operands for c in self.contract[s]):
            return None
        left, right = (
            Block(block.data, self._index(block.table, self.shapes[side], (), side))
            for block, side in operands
        )
        pairs = colliding_slots(left, right)
        if not pairs or len(pairs) > MAX_PAIRS:
            return None
        numbers = (self.contract, self.batch)
        return total(
            *[
                jnp.where(
                    left.table[i] == right.table[j],
                    lax.dot_general(a.data[i], b.data[j], numbers, **self.options),
                    0,
                )
                for i, j in pairs
            ]
        )


def _between_zeros(factor: Any, n: int) -> Any:
    """Block-diagonal matrix of the factor: its first n axes twice, zero where they differ."""
    batch, rest = factor.shape[:n], factor.shape[n:]
    flat = factor.reshape(-1, *rest)
    same = jnp.eye(len(flat), dtype=bool).reshape(len(flat), len(flat), *[1] * len(rest))
    return jnp.where(same, flat, 0).reshape(*batch, *batch, *rest)


def _behind_slots(axes: Axes) -> Axes:
    return tuple(axis + 1 for axis in axes)


def compatible_slots(a: Block, b: Block) -> bool:
    """Whether two uniform blocks list the same directions in the same order."""
    return np.array_equal(a.table.ravel(), b.table.ravel())


@rule_for("dot_general")
def dot_general(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Bilinear rule, block by block, so that unwritten axes and windows save work."""
    a, b = inputs
    x, y = primal_of(a), primal_of(b)
    out = bind(eqn, [x, y])[0]
    contraction = Contraction(eqn, (x.shape, y.shape))
    left, right = ([contraction.ready(block) for block in blocks_of(value)] for value in (a, b))
    blocks = [contraction.push(block, y, 0) for block in left]
    blocks += [contraction.push(block, x, 1) for block in right]
    terms = []
    if laplacian_of(a) is not None:
        terms.append(bind(eqn, [laplacian_of(a), y])[0])
    if laplacian_of(b) is not None:
        terms.append(bind(eqn, [x, laplacian_of(b)])[0])
    for first in left:
        for second in right:
            cross = contraction.cross(first, second)
            terms.append(None if cross is None else 2 * cross)
    blocks = merge([settle(block, out.shape) for block in blocks])
    return [make_node(out, blocks, total(*terms))]
