"""The values of the interpreter: arrays that depend on the input, with their derivatives."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Inexact, Int

Value = Any  # a plain array (constant with respect to the input) or a Node


class Window(NamedTuple):
    """The stretch of one axis outside which a block is zero."""

    axis: int
    start: int
    stop: int


class Block(NamedTuple):
    """Some directions of a Jacobian: `data[s]` is the derivative along `table[s]`.

    Both arrays have a leading slot axis and then the axes of the value. An axis of length 1 stands
    for "the same all along". `table` is known at trace time, so a feature of one electron has three
    slots, however many electrons there are. Direction -1 marks an empty slot, whose data are zero.
    """

    data: Inexact[Array, "slot ..."]
    table: Int[np.ndarray, "slot ..."]
    window: Window | None = None


class Node(NamedTuple):
    """A value that depends on the input; its Jacobian is the sum of its blocks."""

    primal: Inexact[Array, "..."]
    blocks: tuple[Block, ...]
    laplacian: Inexact[Array, "..."] | None  # of the primal's shape; None: known to be zero


def primal_of(value: Value) -> Any:
    """The bare array of a constant or of a Node."""
    return value.primal if isinstance(value, Node) else value


def blocks_of(value: Value) -> tuple[Block, ...]:
    """The Jacobian's blocks; none for a constant."""
    return value.blocks if isinstance(value, Node) else ()


def laplacian_of(value: Value) -> Any:
    """The Laplacian, or None where it is known to be zero."""
    return value.laplacian if isinstance(value, Node) else None


def is_inexact(array: Any) -> bool:
    """Whether an array (or its abstract value) can carry a derivative."""
    return jnp.issubdtype(jnp.result_type(array), np.inexact)


def make_node(primal: Any, blocks: Any, laplacian: Any) -> Value:
    """A Node, or the bare primal if it depends on no input or cannot carry a derivative."""
    is_flat = not blocks and laplacian is None
    if is_flat or not is_inexact(primal) or 0 in jnp.shape(primal):
        return primal
    return Node(primal, tuple(blocks), laplacian)


def total(*terms: Any) -> Any:
    """Sum of the terms that are not None; None if all terms are None."""
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None
