"""Rules that move elements: reshape, transpose, broadcast, slice, gather, select."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vmcjob.fwdlap.cpu import kept_in_order
from vmcjob.fwdlap.generic import differentiate_once
from vmcjob.fwdlap.interpreter import bind, is_known, rule_for
from vmcjob.fwdlap.node import (
    Block,
    Node,
    Value,
    Window,
    is_inexact,
    make_node,
    primal_of,
)
from vmcjob.fwdlap.sparsity import merge
from vmcjob.fwdlap.tables import compress
from vmcjob.fwdlap.windows import expand, widen

Shape = tuple[int, ...]


def push_blocks(eqn: Any, node: Node, move: Callable[[Block], Block | None]) -> list[Value]:
    """Linear rule of one operand: the equation acts on value and Laplacian, `move` on blocks."""
    out = bind(eqn, [node.primal])[0]
    laplacian = None if node.laplacian is None else bind(eqn, [node.laplacian])[0]
    moved = [block for block in map(move, node.blocks) if block is not None]
    return [make_node(out, moved, laplacian)]


@rule_for("neg", "copy", "copy_p", "real", "imag", "conj", "reduce_precision", "name")
def elementwise_linear(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Linear, elementwise functions: blocks keep their shape."""
    (node,) = inputs
    return push_blocks(eqn, node, lambda b: b._replace(data=bind(eqn, [b.data])[0]))


@rule_for("convert_element_type")
def convert(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Conversion of types: linear between inexact types, constant into integers."""
    if not is_inexact(eqn.outvars[0].aval):
        return bind(eqn, [primal_of(inputs[0])])
    return elementwise_linear(eqn, inputs)


@rule_for("stop_gradient", "sign", "floor", "ceil", "round", "is_finite", "argmax", "argmin")
def flat(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Functions that are piecewise constant, or are declared constant (`stop_gradient`)."""
    return bind(eqn, [primal_of(value) for value in inputs])


@rule_for("eq", "ne", "lt", "le", "gt", "ge")
def compare(eqn: Any, inputs: list[Value]) -> list[Value]:
    """A comparison carries no derivative."""
    return flat(eqn, inputs)


@rule_for("transpose")
def transpose(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Permute the axes of data, table and window."""
    order, whole = eqn.params["permutation"], inputs[0].primal.shape
    full = (0, *[axis + 1 for axis in order])
    has_other_rows = order[-1:] != (len(order) - 1,)

    def move(block: Block) -> Block:
        window = block.window
        if window is not None:
            window = window._replace(axis=order.index(window.axis))
        turn = kept_in_order if has_other_rows and block.data.shape[1:] == whole else jnp.transpose
        return Block(turn(block.data, full), block.table.transpose(full), window)

    return push_blocks(eqn, inputs[0], move)


@rule_for("broadcast_in_dim")
def broadcast_in_dim(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Leave new axes unwritten: length 1 in data and table."""
    places, shape = eqn.params["broadcast_dimensions"], eqn.params["shape"]

    def spread(lengths: Shape) -> Shape:
        out = [1] * len(shape)
        for place, length in zip(places, lengths, strict=True):
            out[place] = length
        return tuple(out)

    def move(block: Block) -> Block:
        window = block.window
        if window is not None:
            window = window._replace(axis=places[window.axis])
        data = block.data.reshape(len(block.data), *spread(block.data.shape[1:]))
        index = block.table.reshape(len(block.table), *spread(block.table.shape[1:]))
        return Block(data, index, window)

    return push_blocks(eqn, inputs[0], move)


def axis_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """The smallest groups of neighbouring axes (old, new) that a reshape maps onto each other."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        left, right = [], []
        a = b = 1
        while True:
            if a <= b and i < len(old) and (a < b or not left):
                a, i = a * old[i], i + 1
                left.append(i - 1)
            elif j < len(new) and (b < a or not right):
                b, j = b * new[j], j + 1
                right.append(j - 1)
            elif a == b:
                break
            else:
                a, i = a * old[i], i + 1
                left.append(i - 1)
        groups.append((left, right))
    return groups


def _reshape_array(array: Any, groups: list, old: Shape, new: Shape) -> Any:
    """Reshape all axes but the slot axis; unwritten axes stay unwritten if possible."""
    lengths, target = [len(array)], [len(array)]
    for left, right in groups:
        written = [array.shape[axis + 1] for axis in left]
        if all(length == 1 for length in written):
            lengths += written
            target += [1] * len(right)
        else:
            lengths += [old[axis] for axis in left]
            target += [new[axis] for axis in right]
    library = np if isinstance(array, np.ndarray) else jnp
    return library.broadcast_to(array, tuple(lengths)).reshape(target)


@rule_for("reshape", "squeeze", "expand_dims")
def reshape(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Reshape each group of axes separately, so that groups of unwritten axes stay unwritten."""
    (node,) = inputs
    old, new = node.primal.shape, eqn.outvars[0].aval.shape
    reorders = eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None
    if 0 in old or reorders:
        return differentiate_once(lambda *arrays: bind(eqn, arrays), inputs)
    groups = axis_groups(old, new)

    def move(block: Block) -> Block:
        window = block.window
        if window is not None:
            left, right = next(pair for pair in groups if window.axis in pair[0])
            wide = [axis for axis in right if new[axis] > 1]
            if [axis for axis in left if old[axis] > 1] != [window.axis] or len(wide) != 1:
                block, window = widen(block, old), None
            else:
                return _reshape_windowed(block, groups, wide[0], old, new)
        data = _reshape_array(block.data, groups, old, new)
        return Block(data, compress(_reshape_array(block.table, groups, old, new)))

    return push_blocks(eqn, node, move)


def _reshape_windowed(block: Block, groups: list, axis: int, old: Shape, new: Shape) -> Block:
    """Reshape a block whose window lies on an axis that becomes `axis` unchanged."""
    window = block.window or Window(axis, 0, new[axis])
    length = window.stop - window.start
    old = tuple(length if i == window.axis else n for i, n in enumerate(old))
    new = tuple(length if i == axis else n for i, n in enumerate(new))
    data = _reshape_array(block.data, groups, old, new)
    index = _reshape_array(block.table, groups, old, new)
    return Block(data, compress(index), window._replace(axis=axis))


@rule_for("slice")
def take_slice(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Slice the written axes; cut the window to its part inside the slice."""
    node = inputs[0]
    starts, stops = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or (1,) * len(starts)
    cuts = list(zip(starts, stops, steps, strict=True))

    def move(block: Block) -> Block | None:
        own, window = list(cuts), block.window
        if window is not None and steps[window.axis] != 1:
            block, window = widen(block, node.primal.shape), None
        if window is not None:
            low = max(starts[window.axis], window.start)
            high = min(stops[window.axis], window.stop)
            if low >= high:
                return None
            own[window.axis] = (low - window.start, high - window.start, 1)
            offset = starts[window.axis]
            window = Window(window.axis, low - offset, high - offset)
        return Block(_cut(block.data, own), compress(_cut(block.table, own)), window)

    return push_blocks(eqn, node, move)


def _cut(array: Any, cuts: list) -> Any:
    slices = [
        slice(None) if array.shape[axis + 1] == 1 else slice(*cut) for axis, cut in enumerate(cuts)
    ]
    return array[(slice(None), *slices)]


@rule_for("tile")
def tile(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Repeat along written axes; an unwritten axis needs no repeat."""
    (node,) = inputs
    repeats = eqn.params["reps"]

    def move(block: Block) -> Block:
        block = widen(block, node.primal.shape)
        return Block(_tiled(block.data, repeats), _tiled(block.table, repeats))

    return push_blocks(eqn, node, move)


def _tiled(array: Any, repeats: Sequence[int]) -> Any:
    own = [1 if array.shape[axis + 1] == 1 else n for axis, n in enumerate(repeats)]
    if all(n == 1 for n in own):
        return array
    return (np if isinstance(array, np.ndarray) else jnp).tile(array, (1, *own))


@rule_for("gather", "dynamic_slice", "rev", "pad")
def rearrange(eqn: Any, inputs: list[Value]) -> list[Value]:
    """All other moves of elements: apply the same equation to the index table."""
    node, *rest = inputs
    rest_is_plain = not any(isinstance(value, Node) for value in rest)
    # The places of the elements must be known here; they do not depend on the padding value.
    pads = eqn.primitive.name == "pad"
    places = [] if pads else rest
    if not isinstance(node, Node) or not rest_is_plain or not all(map(is_known, places)):
        return differentiate_once(lambda *arrays: bind(eqn, arrays), inputs)

    def apply(array: Any) -> Any:
        return bind(eqn, [array, *([np.zeros((), array.dtype)] if pads else places)])[0]

    def linear(tangent: Any) -> Any:
        return jax.jvp(apply, (node.primal,), (tangent,))[1]

    moved = [_rearranged(block, node.primal, apply, linear) for block in node.blocks]
    laplacian = None if node.laplacian is None else linear(node.laplacian)
    return [make_node(bind(eqn, [node.primal, *rest])[0], moved, laplacian)]


def _rearranged(block: Block, like: Any, apply: Any, linear: Any) -> Block:
    data = jax.vmap(linear)(expand(block, like.shape))
    index = np.broadcast_to(widen(block, like.shape).table, (len(block.table), *like.shape))
    with jax.ensure_compile_time_eval():
        # The tables are passed as tangents, raised by one, so that padded or filled places read
        # zero. Half precision would round them.
        zero = jnp.zeros(like.shape, jnp.promote_types(like.dtype, jnp.float32))
        tables = [jnp.asarray(table + 1, zero.dtype) for table in index]
        moved = [np.asarray(jax.jvp(apply, (zero,), (table,))[1]) for table in tables]
    return Block(data, compress(np.rint(np.real(np.stack(moved))).astype(np.int64) - 1))


@rule_for("select_n")
def select(eqn: Any, inputs: list[Value]) -> list[Value]:
    """The derivatives of the chosen case, with all other cases masked out."""
    which, *cases = inputs
    primals = [primal_of(case) for case in cases]
    out = bind(eqn, [primal_of(which), *primals])[0]
    laplacian, blocks = None, []
    for i, case in enumerate(cases):
        if not isinstance(case, Node):
            continue
        chosen = primal_of(which) == i
        if case.laplacian is not None:
            term = jnp.where(chosen, case.laplacian, 0)
            laplacian = term if laplacian is None else laplacian + term
        mask = chosen
        blocks += [_masked(block, mask, out.shape) for block in case.blocks]
    return [make_node(out, merge(blocks), laplacian)]


def _masked(block: Block, mask: Any, shape: Shape) -> Block:
    block = widen(block, shape)
    return block._replace(data=jnp.where(mask, block.data, 0))
