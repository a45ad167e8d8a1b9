"""The space warp: moves of electrons that follow a move of the nuclei, and weights of the moves."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


def follow(r: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Electron positions after a move of the nuclei: the space-warp transformation.

    r′ = r + Σ_I w_I (R′_I − R_I) with w_I = |r − R_I|⁻⁴ / Σ_J |r − R_J|⁻⁴; an electron at a nucleus
    moves with it (C. Filippi and C. J. Umrigar, Phys. Rev. B 61, R16291 (2000)).

    Args:
        r: (…, 3), bohr.
        before, after: positions of the nuclei, (nucleus, 3), bohr.

    Returns:
        Positions in the shape and precision of `r`.
    """
    apart = np.linalg.norm(r[..., None, :].astype(float) - before, axis=-1)
    nearest = apart.min(axis=-1, keepdims=True)
    weights = np.where(apart == nearest, 1.0, nearest / np.where(apart > 0.0, apart, 1.0)) ** 4
    weights /= weights.sum(axis=-1, keepdims=True)
    return (r + weights @ (after - before)).astype(r.dtype)


class Warp(NamedTuple):
    """The weights of the space warp, ω_A = |r − R_A|⁻⁴ / Σ_B |r − R_B|⁻⁴, and derivatives."""

    weight: Float[Array, "elec nuc"]
    gradient: Float[Array, "elec nuc 3"]  # ∇ω_A
    laplacian: Float[Array, "elec nuc"]  # ∇²ω_A


def warp(r: Float[Array, "elec 3"], nuclei: Float[Array, "nuc 3"]) -> Warp:
    """The weights of all electrons.

    With s_A = ∇ log |r − R_A|⁻⁴,  ∇ω_A = Σ_B ω_A ω_B (s_A − s_B). Near a nucleus, s is infinite,
    and the product of two weights goes to zero faster.
    """
    x = r[:, None] - nuclei
    square = jnp.sum(x**2, axis=-1)
    share = (jnp.min(square, axis=-1, keepdims=True) / square) ** 2
    weight = share / jnp.sum(share, axis=-1, keepdims=True)
    slope = -4.0 * x / square[..., None]
    spread = -4.0 / square  # ∇·s
    pair = weight[:, :, None] * weight[:, None, :]
    apart = slope[:, :, None] - slope[:, None, :]  # (electron, A, B, xyz)
    gradient = jnp.sum(pair[..., None] * apart, axis=2)
    product = weight[:, None, :, None] * gradient[:, :, None]
    product += weight[:, :, None, None] * gradient[:, None, :]  # ∇(ω_A ω_B)
    laplacian = jnp.sum(product * apart, axis=(2, 3))
    laplacian += jnp.sum(pair * (spread[:, :, None] - spread[:, None, :]), axis=2)
    return Warp(weight, gradient, laplacian)
