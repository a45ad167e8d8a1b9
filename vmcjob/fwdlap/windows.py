"""Blocks that are zero outside of a window: cut, pad, expand, scale."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Inexact

from vmcjob.fwdlap.cpu import kept, kept_for
from vmcjob.fwdlap.node import Block, Window

Shape = tuple[int, ...]


def restrict(array: Any, window: Window | None, lead: int = 0) -> Any:
    """The part of an array inside the window; `lead` axes precede the axes of the value."""
    if window is None or array.ndim == 0 or array.shape[window.axis + lead] == 1:
        return array
    return lax.slice_in_dim(array, window.start, window.stop, axis=window.axis + lead)


def embed(array: Any, window: Window | None, shape: Shape) -> Any:
    """An array of `shape` that is zero outside the window and `array` inside."""
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
    """The block without a window: zeros are written out."""
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
    return Block(kept(lax.pad(kept(data), jnp.zeros((), data.dtype), padding)), index)


def expand(block: Block, shape: Shape) -> Inexact[Array, "slot ..."]:
    """The block's data with every axis written out."""
    block = widen(block, shape)
    return jnp.broadcast_to(block.data, (len(block.data), *shape))


def scale(block: Block, factor: Any) -> Block:
    """The block times an array of the value's shape (or a scalar)."""
    factor = restrict(jnp.asarray(factor), block.window)
    lengths = block.data.shape[1:]
    shape = (len(block.data), *np.broadcast_shapes(lengths, factor.shape))
    return block._replace(data=kept_for(block.data, shape) * factor)
