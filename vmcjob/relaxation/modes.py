"""Motions that change the shape of a molecule, and the noisy quasi-Newton move along them.

The motions are the eigenvectors of a Hessian in the space without translations, rotations and fixed
atoms. Along a motion with the curvature k > 0, the force f with the standard error s moves the
nuclei by

    f/k · max(0, 1 − (s/f)²)

so a force that may be chance moves nothing, and no move is longer than the error of its force
warrants (the positive part of W. James and C. Stein, Proc. 4th Berkeley Symp. 1, 361 (1961), for
each motion by itself).

Motions of the same curvature, as ammonia has, are eigenvectors in any mixture, and rounding decides
in which. They are treated together: f² and s² are then sums over the motions, which the mixture
does not change. The rows of their projector P stand for them, as Σ_i P_i P_i^T = P.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

MIN_CURVATURE = 0.05
"""Hartree/bohr²: the curvature of soft motions, and of motions toward a barrier, counts as this."""
MAX_MOVE = 0.3
"""Bohr: no nucleus moves farther at a time."""
ROUNDING = 1e-10
SMALL = 1e-4
"""A row of a projector that is shorter is rounding: it is the square root of an entry."""
MIN_MOVE = 0.02
"""Bohr: the trust radius does not shrink below."""
SAME = 1e-3
"""Curvatures that differ by a smaller part of the larger one count as the same."""
CERTAIN = 2.0
"""Standard errors by which an energy must have risen to shrink the trust radius."""

Vectors = Float[np.ndarray, "nuc 3"]


@dataclass(frozen=True)
class Modes:
    """Motions that change the shape, and their curvatures.

    The sum of all outer products of a motion with itself is a projector. A motion with a curvature
    of its own has unit length.
    """

    directions: Float[np.ndarray, "mode nuc 3"]
    curvatures: Float[np.ndarray, " mode"]  # hartree/bohr²; at least MIN_CURVATURE
    least: float  # the least curvature, as it is
    groups: tuple[int, ...]  # how many directions each curvature has, one after the other

    @property
    def projector(self) -> Float[np.ndarray, "nuc*3 nuc*3"]:
        """Takes any motion to its part that changes the shape."""
        flat = self.directions.reshape(len(self.directions), -1)
        found = flat.T @ flat
        return np.where(np.abs(found) > ROUNDING, found, 0.0)

    def toward_minimum(self, gradient: Vectors) -> Vectors:
        """The direction along which the force is the change of a coordinate on a Newton move.

        Args:
            gradient: of the coordinate by the nuclei.
        """
        slopes = np.tensordot(self.directions, gradient, 2) / self.curvatures
        return np.tensordot(slopes, self.directions, 1)

    def move(
        self,
        forces: Float[np.ndarray, " mode"],
        errors: Float[np.ndarray, " mode"],
        radius: float = MAX_MOVE,
    ) -> Vectors:
        """The move for forces along the motions; no nucleus moves farther than the radius."""
        starts = np.cumsum((0, *self.groups[:-1]))
        square, noise = (np.add.reduceat(x**2, starts) for x in (forces, errors))
        chance = np.divide(noise, square, out=np.full(len(square), np.inf), where=square > 0.0)
        shares = np.repeat(np.maximum(0.0, 1.0 - chance), self.groups)
        lengths = forces / self.curvatures * shares
        move = np.tensordot(lengths, self.directions, 1)
        farthest = np.max(np.linalg.norm(move, axis=1))
        return move * min(1.0, radius / farthest) if farthest > 0.0 else move


def modes_of(
    positions: Vectors, hessian: Float[np.ndarray, "nuc*3 nuc*3"], fixed: Sequence[int] = ()
) -> Modes:
    """The motions at a geometry.

    Args:
        positions: bohr.
        hessian: hartree/bohr².
        fixed: numbers of the nuclei that stay. Rotations that leave them in place are left out.
    """
    stays = np.zeros(positions.shape, bool)
    stays[list(fixed)] = True
    rigid = _rigid_motions(positions, stays.ravel())
    free = np.eye(positions.size)[:, ~stays.ravel()]
    left, sizes, _ = np.linalg.svd(free - rigid @ (rigid.T @ free), full_matrices=False)
    shapes = left[:, sizes > 0.5]  # each is 1 or 0
    curvatures, vectors = np.linalg.eigh(shapes.T @ hessian @ shapes)
    bounded = np.maximum(np.abs(curvatures), MIN_CURVATURE)
    is_other = np.diff(curvatures) > SAME * np.maximum(bounded[1:], bounded[:-1])
    parts = np.split(np.arange(len(bounded)), 1 + np.flatnonzero(is_other))
    motions = [_without_mixture((shapes @ vectors[:, part]).T) for part in parts]
    groups = tuple(map(len, motions))
    common = np.repeat([bounded[part].mean() for part in parts], groups)
    directions = np.concatenate(motions).reshape(-1, *positions.shape)
    return Modes(directions, common, float(curvatures.min()), groups)


def _without_mixture(vectors: np.ndarray) -> np.ndarray:
    """A single vector as it is; of several, the rows of their projector that are not zero."""
    if len(vectors) == 1:
        return vectors
    projector = vectors.T @ vectors
    return projector[np.linalg.norm(projector, axis=1) > SMALL]


def _rigid_motions(
    positions: Vectors, stays: Float[np.ndarray, " nuc*3"]
) -> Float[np.ndarray, "nuc*3 rigid"]:
    """An orthonormal basis of translations and rotations that leave fixed nuclei in place."""
    x = positions - positions.mean(axis=0)
    shifts = [np.tile(axis, len(x)) for axis in np.eye(3)]
    turns = [np.cross(axis, x).ravel() for axis in np.eye(3)]
    motions = _orthonormal(np.stack([*shifts, *turns], axis=1))
    if stays.any():
        _, sizes, right = np.linalg.svd(motions[stays])
        moved = np.zeros(len(right), bool)
        moved[: len(sizes)] = sizes > 1e-8
        motions = motions @ right[~moved].T
    return motions


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """A basis of the space of some columns; a linear molecule has one rotation less."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, sizes > 1e-6 * max(sizes[0], 1.0)]


def trust_radius(energies: Sequence[float], errors: Sequence[float]) -> float:
    """The trust radius in bohr after a path with these energies.

    The radius halves after an energy that has surely risen, and doubles after any other.
    """
    radius = MAX_MOVE
    for place in range(1, len(energies)):
        rise = energies[place] - energies[place - 1]
        has_risen = rise > CERTAIN * float(np.hypot(errors[place], errors[place - 1]))
        radius = max(MIN_MOVE, radius / 2) if has_risen else min(MAX_MOVE, 2 * radius)
    return radius
