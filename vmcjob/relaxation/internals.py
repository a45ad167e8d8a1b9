"""Distances and angles of a molecule, and their derivatives by the nuclei."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

BONDED = 1.3
"""Atoms are bonded up to this distance, in units of the sum of their covalent radii."""
STEP = 1e-4  # bohr, of central differences

Vectors = Float[np.ndarray, "nuc 3"]


def internals_of(elements: Sequence[int], positions: Vectors) -> list[tuple[int, ...]]:
    """Pairs of bonded atoms, then triples of atoms with bonds to the one in the middle.

    The only two atoms are bonded at any distance.
    """
    from pyscf.data.radii import COVALENT

    def is_bond(i: int, j: int) -> bool:
        reach = BONDED * float(COVALENT[elements[i]] + COVALENT[elements[j]])
        return len(elements) == 2 or math.dist(positions[i], positions[j]) <= reach

    bonds = [pair for pair in combinations(range(len(elements)), 2) if is_bond(*pair)]
    angles = []
    for middle in range(len(elements)):
        ends = [i + j - middle for i, j in bonds if middle in (i, j)]
        angles += [(first, middle, last) for first, last in combinations(sorted(ends), 2)]
    return [*bonds, *angles]


def value(atoms: tuple[int, ...], positions: Vectors) -> float:
    """The distance of two atoms in bohr, or the angle of three in degrees."""
    if len(atoms) == 2:
        return math.dist(*positions[list(atoms)])
    first, middle, last = positions[list(atoms)]
    a, b = first - middle, last - middle
    return math.degrees(math.atan2(float(np.linalg.norm(np.cross(a, b))), float(a @ b)))


def gradient(atoms: tuple[int, ...], positions: Vectors) -> Vectors:
    """The derivative of `value` by the nuclei."""
    found = np.zeros(positions.shape)
    for place in np.ndindex(positions.shape):
        ends = []
        for sign in (1.0, -1.0):
            moved = positions.copy()
            moved[place] += sign * STEP
            ends.append(value(atoms, moved))
        found[place] = (ends[0] - ends[1]) / (2.0 * STEP)
    return found
