"""Moves of walkers that follow a move of the nuclei."""

import numpy as np


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
