"""Quadratures on the unit sphere, and random rotations of them."""

from functools import cache
from itertools import permutations, product
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

DEGREES: Final = {4: 2, 6: 3, 12: 5, 18: 5, 26: 7, 32: 9, 50: 11}
"""Highest degree of a polynomial that each quadrature integrates exactly, by number of points."""
GOLDEN: Final = (1.0 + 5.0**0.5) / 2.0


class Quadrature(NamedTuple):
    """∫ f dΩ / 4π ≈ Σ_q w_q f(n_q)."""

    directions: Float[np.ndarray, "point 3"]  # of length 1
    weights: Float[np.ndarray, " point"]  # their sum is 1


@cache
def quadrature(n_points: int) -> Quadrature:
    """The quadrature with so many points, one of `DEGREES` (A. H. Stroud, 1971, and Lebedev)."""
    axes = _orbit((1.0, 0.0, 0.0))
    edges, corners = _orbit((1.0, 1.0, 0.0)), _orbit((1.0, 1.0, 1.0))
    icosahedron = np.concatenate([np.roll(_signs((0.0, 1.0, GOLDEN)), k, 1) for k in range(3)])
    others = [np.roll(_signs((0.0, GOLDEN, 1.0 / GOLDEN)), k, 1) for k in range(3)]
    dodecahedron = np.concatenate([corners, *others])
    rings = {
        4: [(corners[np.prod(np.sign(corners), axis=1) > 0], 1 / 4)],
        6: [(axes, 1 / 6)],
        12: [(icosahedron, 1 / 12)],
        18: [(axes, 1 / 30), (edges, 1 / 15)],
        26: [(axes, 1 / 21), (edges, 4 / 105), (corners, 27 / 840)],
        32: [(icosahedron, 5 / 168), (dodecahedron, 27 / 840)],
        50: [
            *((axes, 4 / 315), (edges, 64 / 2835), (corners, 27 / 1280)),
            (_orbit((1.0, 1.0, 3.0)), 14641 / 725760),
        ],
    }[n_points]
    points = np.concatenate([points for points, _ in rings])
    weights = np.concatenate([np.full(len(points), weight) for points, weight in rings])
    return Quadrature(points / np.linalg.norm(points, axis=1, keepdims=True), weights)


def _signs(point: tuple[float, ...]) -> np.ndarray:
    """The point with all combinations of signs, each once."""
    return np.array(sorted(set(product(*({x + 0.0, 0.0 - x} for x in point)))))


def _orbit(point: tuple[float, ...]) -> np.ndarray:
    """All points that the rotations and reflections of a cube make of one."""
    return np.concatenate([_signs(p) for p in sorted(set(permutations(point)))])


def random_rotation(key: Array, dtype: jnp.dtype) -> Float[Array, "3 3"]:
    """A rotation of Haar's measure: that of four normal deviates as a quaternion."""
    q = jax.random.normal(key, (4,), dtype)
    w, x, y, z = q / jnp.linalg.norm(q)
    rows = (
        (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)),
        (2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)),
        (2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)),
    )
    return jnp.array(rows)


def legendre(l_most: int, x: Float[Array, "*some"]) -> list[Float[Array, "*some"]]:
    """The Legendre polynomials P_0 to P_l of x."""
    found = [jnp.ones_like(x), x]
    for l in range(1, l_most):  # noqa: E741
        found.append(((2 * l + 1) * x * found[l] - l * found[l - 1]) / (l + 1))
    return found[: l_most + 1]
