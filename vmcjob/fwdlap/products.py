"""Rules for products and contractions: mul, div, dot_general, reduce_sum."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vmcjob.fwdlap.generic import differentiate_once, uniform_blocks
from vmcjob.fwdlap.interpreter import bind, rule_for
from vmcjob.fwdlap.node import (
    Block,
    Node,
    Value,
    blocks_of,
    laplacian_of,
    make_node,
    primal_of,
    total,
)
from vmcjob.fwdlap.sparsity import (
    MAX_PAIRS,
    colliding_slots,
    directions_of,
    expand,
    fill_holes,
    inner,
    is_uniform,
    local_union,
    merge,
    scale,
    settle,
    uniform,
    widen,
)

Axes = tuple[int, ...]


def _times(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a * b


@rule_for("mul")
def multiply(eqn: Any, inputs: list[Value]) -> list[Value]:
    """J' = J_a b + a J_b,  L' = L_a b + a L_b + 2 sum_d J_a J_b."""
    a, b = inputs
    x, y = primal_of(a), primal_of(b)
    out = bind(eqn, [x, y])[0]
    blocks = [scale(block, y) for block in blocks_of(a)]
    blocks += [scale(block, x) for block in blocks_of(b)]
    laplacian = total(_times(laplacian_of(a), y), _times(x, laplacian_of(b)))
    cross = _square(a) if a is b else inner(blocks_of(a), blocks_of(b), out.shape)
    laplacian = total(laplacian, _times(2, cross))
    if laplacian is not None:
        laplacian = jnp.broadcast_to(laplacian, out.shape)
    return [make_node(out, merge(blocks), laplacian)]


def _square(a: Node) -> Any:
    return inner(a.blocks, a.blocks, a.primal.shape)


@rule_for("div")
def divide(eqn: Any, inputs: list[Value]) -> list[Value]:
    """From y b = a:  J' = (J_a - y J_b) / b,  L' = (L_a - y L_b - 2 sum_d J' J_b) / b."""
    a, b = inputs
    denominator = primal_of(b)
    out = bind(eqn, [primal_of(a), denominator])[0]
    reciprocal = 1 / denominator
    blocks = [scale(block, reciprocal) for block in blocks_of(a)]
    laplacian = laplacian_of(a)
    if isinstance(b, Node):
        blocks = merge([*blocks, *[scale(block, -out * reciprocal) for block in b.blocks]])
        cross = inner(blocks, b.blocks, out.shape)
        laplacian = total(laplacian, _times(-out, b.laplacian), _times(-2, cross))
    if laplacian is not None:
        laplacian = jnp.broadcast_to(laplacian * reciprocal, out.shape)
    return [make_node(out, blocks, laplacian)]


@rule_for("reduce_sum")
def reduce_sum(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Sum what shares its directions; what does not becomes more slots, and is not summed."""
    (node,) = inputs
    shape, axes = node.primal.shape, tuple(eqn.params["axes"])
    out = bind(eqn, [node.primal])[0]
    laplacian = None if node.laplacian is None else bind(eqn, [node.laplacian])[0]
    blocks = [_sum_block(block, shape, axes) for block in node.blocks]
    return [make_node(out, merge([settle(b, out.shape) for b in blocks]), laplacian)]


@rule_for("reduce_max", "reduce_min")
def reduce_to_extremum(eqn: Any, inputs: list[Value]) -> list[Value]:
    """The derivatives of the extreme element; of several, their mean, as JAX has it."""
    (node,) = inputs
    shape, axes = node.primal.shape, tuple(eqn.params["axes"])
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
    data = _sum(data, written) if written else data
    data = data * repeats if repeats > 1 else data
    data = _axes_to_slots(data, shape, varying, axes)
    return Block(data, fill_holes(_axes_to_slots(block.table, shape, varying, axes)), window)


# Terms of a sum from which on XLA:CPU does better with a product.
MANY_TERMS = 8


def _sum(data: Any, axes: Axes) -> Any:
    """The sum over some axes, kept at length 1.

    On CPUs long ones are products with ones: XLA fuses a sum with the broadcasts and products
    before it, and then takes up to ten times as long as for the two one after the other.
    """
    lengths = [data.shape[axis] for axis in axes]
    if jax.default_backend() != "cpu" or np.prod(lengths) < MANY_TERMS:
        return jnp.sum(data, axis=axes, keepdims=True)
    numbers = ((axes, tuple(range(len(axes)))), ((), ()))
    ones = jnp.ones(lengths, data.dtype)
    out = lax.dot_general(data, ones, numbers, precision=lax.Precision.HIGHEST)
    return jnp.expand_dims(out, axes)


def align(block: Block, shape: Axes, axes: Axes) -> tuple[Block, Axes]:
    """The block made ready for a sum over `axes`, and those axes that must become slots for it.

    Where the directions along the axes are all different, the axes turn into slots and nothing
    is summed; where they repeat, the slots are shared out anew first.
    """
    varying = tuple(axis for axis in axes if block.table.shape[axis + 1] > 1)
    union = local_union(block, shape, varying) if varying else None
    return (block, varying) if union is None else (union, ())


def _axes_to_slots(array: Any, shape: Axes, varying: Axes, axes: Axes) -> Any:
    """Turn axes into slots, last axes fastest after the slot axis itself; drop the rest of `axes`.

    Slots end up ordered (varying axes..., old slots), so that electron-major stays that way.
    """
    lengths = list(array.shape)
    for axis in varying:
        lengths[axis + 1] = shape[axis]
    library = np if isinstance(array, np.ndarray) else jnp
    array = library.broadcast_to(array, lengths)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    dropped = [axis for axis in axes if axis not in varying]
    order = [axis + 1 for axis in varying] + [0] + [axis + 1 for axis in (*dropped, *kept)]
    n_slots = lengths[0] * int(np.prod([shape[axis] for axis in varying], dtype=int))
    return array.transpose(order).reshape(n_slots, *[lengths[axis + 1] for axis in kept])


class Contraction:
    """The axes of a dot_general and what a block becomes in it."""

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

    def push(self, block: Block, other: Any, side: int) -> Block:
        """The block contracted with the other operand's primal."""
        shape, contract, batch = self.shapes[side], self.contract[side], self.batch[side]
        other_contract, other_batch = self.contract[1 - side], self.batch[1 - side]
        if block.window is not None:
            if block.window.axis in contract:
                place = other_contract[contract.index(block.window.axis)]
                start, stop = block.window.start, block.window.stop
                other = lax.slice_in_dim(other, start, stop, axis=place)
                shape = tuple(
                    stop - start if i == block.window.axis else n for i, n in enumerate(shape)
                )
                block = block._replace(window=None)
            else:
                block = widen(block, shape)
        block, varying = align(block, shape, tuple(contract))
        written = {*contract, *batch}
        lengths = [
            shape[axis] if axis in written else block.data.shape[axis + 1]
            for axis in range(len(shape))
        ]
        data = jnp.broadcast_to(block.data, (len(block.data), *lengths))
        kept = [i for i, axis in enumerate(contract) if axis not in varying]
        moved = [contract.index(axis) for axis in varying]
        own = (
            tuple(contract[i] + 1 for i in kept),
            (*[contract[i] + 1 for i in moved], *[axis + 1 for axis in batch]),
        )
        others = (
            tuple(other_contract[i] for i in kept),
            (*[other_contract[i] for i in moved], *other_batch),
        )
        # A product for each of a batch is fastest with its longest axis, the directions, last.
        n_front, n_other = len(varying) + len(batch), len(self.free(1 - side))
        data_first = side == 0 and n_front == 0
        operands = (data, other) if data_first else (other, data)
        pair = (own, others) if data_first else (others, own)
        numbers = ((pair[0][0], pair[1][0]), (pair[0][1], pair[1][1]))
        out = lax.dot_general(*operands, numbers, **self.options)
        slot = n_front if data_first else n_front + n_other
        if side == 0 and not data_first:
            out = jnp.moveaxis(out, range(n_front, slot), range(-n_other, 0))
            slot = n_front
        out = jnp.moveaxis(out, slot, len(varying))
        out = out.reshape(-1, *out.shape[len(varying) + 1 :])
        return Block(out, self._index(block.table, shape, varying, side))

    def _index(self, index: np.ndarray, shape: Axes, varying: Axes, side: int) -> np.ndarray:
        """The table of `push`: its own axes where they land, length 1 for the other operand's."""
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
        """sum_d f(A_d, B_d) of two blocks; None where they share no direction."""
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
            blocks = [
                uniform([block], shape, shared)
                for block, shape in zip(blocks, self.shapes, strict=True)
            ]
        left, right = blocks
        (c_left, c_right), (b_left, b_right) = self.contract, self.batch
        numbers = (
            ((0, *_behind_slots(c_left)), (0, *_behind_slots(c_right))),
            (_behind_slots(b_left), _behind_slots(b_right)),
        )
        return lax.dot_general(left.data, right.data, numbers, **self.options)

    def _few_pairs(self, a: Block, b: Block) -> Any:
        """`cross` slot by slot, where few slots of either share a direction anywhere."""
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


def _behind_slots(axes: Axes) -> Axes:
    return tuple(axis + 1 for axis in axes)


def compatible_slots(a: Block, b: Block) -> bool:
    """Whether two uniform blocks list the same directions in the same order."""
    return np.array_equal(a.table.ravel(), b.table.ravel())


@rule_for("dot_general")
def dot_general(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Bilinear; each block is contracted by itself, so unwritten axes and windows save work."""
    a, b = inputs
    x, y = primal_of(a), primal_of(b)
    out = bind(eqn, [x, y])[0]
    contraction = Contraction(eqn, (x.shape, y.shape))
    blocks = [contraction.push(block, y, 0) for block in blocks_of(a)]
    blocks += [contraction.push(block, x, 1) for block in blocks_of(b)]
    terms = []
    if laplacian_of(a) is not None:
        terms.append(bind(eqn, [laplacian_of(a), y])[0])
    if laplacian_of(b) is not None:
        terms.append(bind(eqn, [x, laplacian_of(b)])[0])
    for left in blocks_of(a):
        for right in blocks_of(b):
            terms.append(_times(2, contraction.cross(left, right)))
    blocks = merge([settle(block, out.shape) for block in blocks])
    return [make_node(out, blocks, total(*terms))]


@rule_for("conv_general_dilated")
def convolve(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Linear in each operand; directions share one index."""
    if not all(isinstance(value, Node) for value in inputs):
        return differentiate_once(lambda *arrays: bind(eqn, arrays), inputs)
    a, b = inputs
    out = bind(eqn, [a.primal, b.primal])[0]
    directions = directions_of([*a.blocks, *b.blocks])
    left, right = (
        expand(uniform(node.blocks, node.primal.shape, directions), node.primal.shape)
        for node in (a, b)
    )

    def fun(x: Any, y: Any) -> Any:
        return bind(eqn, [x, y])[0]

    jacobian = jax.vmap(lambda p, q: fun(p, b.primal) + fun(a.primal, q))(left, right)
    cross = 2 * jnp.sum(jax.vmap(fun)(left, right), axis=0)
    terms = [cross]
    if a.laplacian is not None:
        terms.append(fun(a.laplacian, b.primal))
    if b.laplacian is not None:
        terms.append(fun(a.primal, b.laplacian))
    return [make_node(out, uniform_blocks(jacobian, directions), total(*terms))]
