"""Index tables of Jacobian blocks: the direction in each slot at each element."""

import numpy as np
from jaxtyping import Int

Table = Int[np.ndarray, "slot ..."]


def compress(index: Table) -> Table:
    """The table with every constant axis cut to length 1."""
    for axis in range(1, index.ndim):
        first = index[(slice(None),) * axis + (slice(0, 1),)]
        if index.shape[axis] > 1 and (index == first).all():
            index = first
    return index


def fill_holes(table: Table) -> Table:
    """The table with -1 replaced, if the rest of the slot has a single direction."""
    top = table.max(axis=tuple(range(1, table.ndim)), keepdims=True)
    agree = ((table == top) | (table < 0)).all(axis=tuple(range(1, table.ndim)), keepdims=True)
    return compress(np.where(agree, top, table))


def uniform_index(directions: Int[np.ndarray, " slot"], ndim: int) -> Int[np.ndarray, "slot ..."]:
    """Table of a block whose directions are the same for all elements."""
    return np.asarray(directions, np.int64).reshape(-1, *[1] * ndim)


def has_repeats(index: Table) -> bool:
    """Whether some element has one direction in two slots."""
    ordered = np.sort(index, axis=0)
    return bool(((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)).any())


def distinct(
    table: Int[np.ndarray, " slot *axes"],
) -> Int[np.ndarray, " fewer *axes"]:
    """The distinct directions along the leading axis, sorted; -1 fills the remaining places."""
    missing = np.iinfo(table.dtype).max
    ordered = np.sort(np.where(table < 0, missing, table), axis=0)
    repeats = np.concatenate([np.zeros_like(ordered[:1], bool), ordered[1:] == ordered[:-1]])
    ordered = np.sort(np.where(repeats, missing, ordered), axis=0)
    filled = int((ordered != missing).sum(axis=0).max(initial=1))
    return np.where(ordered == missing, -1, ordered)[: max(filled, 1)]
