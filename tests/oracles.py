"""Slow, obvious twins of what the project does fast; expected values of tests come from here."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

LogPsi = Callable[..., Array]


def hydrogenic_1s(charge: float) -> LogPsi:
    """log ψ of one electron in the ground state of a nucleus at the origin; E = −Z²/2."""
    return lambda params, r: -charge * jnp.linalg.norm(r[0])


def hydrogenic_2pz(charge: float) -> LogPsi:
    """log|ψ| of one electron in the 2p_z state of a nucleus at the origin; E = −Z²/8."""
    return lambda params, r: jnp.log(jnp.abs(r[0, 2])) - 0.5 * charge * jnp.linalg.norm(r[0])


def kinetic_energy(log_psi: LogPsi, params: object, r: Array) -> Array:
    """−½ ∇²ψ / ψ of one walker from the Hessian of ψ itself, not of its logarithm."""
    reference = log_psi(params, r)

    def psi(flat: Array) -> Array:
        return jnp.exp(log_psi(params, flat.reshape(r.shape)) - reference)

    return -0.5 * jnp.trace(jax.hessian(psi)(r.reshape(-1)))


def natural_gradient(
    log_psi: LogPsi, params: object, r: Array, e_loc: Array, damping: float
) -> np.ndarray:
    """(S + λ)⁻¹ g by explicit scores and a direct solve."""
    gradient_of = jax.grad(log_psi)
    rows = jax.jit(jax.vmap(lambda walker: ravel_pytree(gradient_of(params, walker))[0]))(r)
    scores = np.array(rows, np.float64)
    scores -= scores.mean(axis=0)
    deviations = np.asarray(e_loc, np.float64) - np.asarray(e_loc, np.float64).mean()
    overlap = scores.T @ scores / len(scores)
    gradient = scores.T @ deviations / len(scores)
    return np.linalg.solve(overlap + damping * np.eye(len(gradient)), gradient)
