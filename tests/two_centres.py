"""One electron on two centres, whose energy and force are known by quadrature."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vmcjob.vmc import forces
from vmcjob.vmc.contracts import Nuclei, Psi
from vmcjob.vmc.hamiltonian import molecular_hamiltonian
from vmcjob.vmc.observing import Sample

ZETA, DISTANCE = 1.1, 2.3
"""The best exponent at no distance, so that Pulay's term is not zero."""


def two_centres(sign: float) -> Callable[..., Psi]:
    """One electron in exp(−ζ |r − R_0|) ± exp(−ζ |r − R_1|), without or with a node."""

    def psi(zeta: Array, r: Array, nuclei: Nuclei) -> Psi:
        d = jnp.linalg.norm(r[0] - nuclei.positions, axis=-1)
        parts = jnp.exp(-zeta * d)
        value = parts[0] + sign * parts[1]
        return Psi(jnp.sign(value), jnp.log(jnp.abs(value)))

    return psi


def sample_of(
    psi: Callable[..., Psi],
    nuclei: Nuclei,
    r: Array,
    params: object = ZETA,
) -> Sample:
    """One walker of a molecule."""
    hamiltonian, key = molecular_hamiltonian(), jax.random.key(0)
    local = hamiltonian.local_energy(psi, params, r, nuclei, key)
    return Sample(hamiltonian, psi, params, r, nuclei, 1, local, key)


def quadrature(distance: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for functions of a molecule along z, in prolate spheroidal coordinates.

    z = a ξ η and ρ = a √((ξ² − 1)(1 − η²)), with volume a³ (ξ² − η²); finer panels of η at the
    plane between the nuclei, where ψ may have a node.
    """
    a = 0.5 * distance
    x, w = np.polynomial.laguerre.laggauss(32)
    scale = 2.0 * ZETA * a
    xi, w_xi = 1.0 + x / scale, w * np.exp(x) / scale
    edges = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5, 0.75, 1.0])
    x, w = np.polynomial.legendre.leggauss(10)
    half = 0.5 * np.diff(edges)[:, None]
    eta, w_eta = (edges[:-1, None] + half * (1.0 + x)).ravel(), (half * w).ravel()
    eta, w_eta = np.concatenate([-eta, eta]), np.concatenate([w_eta, w_eta])
    xi, eta = (one.ravel() for one in np.meshgrid(xi, eta, indexing="ij"))
    weights = np.outer(w_xi, w_eta).ravel() * a**3 * (xi**2 - eta**2)
    rho = a * np.sqrt((xi**2 - 1.0) * (1.0 - eta**2))
    return np.stack([rho, 0.0 * rho, a * xi * eta], axis=-1)[:, None], weights


def protons(distance: float | Array) -> Nuclei:
    z = jnp.array([[0.0, 0.0, -0.5], [0.0, 0.0, 0.5]])
    return Nuclei(distance * z, jnp.ones(2))


class Averaged(NamedTuple):
    """Means over ψ² by quadrature, of one electron on two centres along z."""

    energy: float
    local: np.ndarray  # (nucleus, form)
    by_warp: np.ndarray  # (zones,): of width zero, e, 2e; Pulay's part for the second nucleus
    unwarped: float  # the same without the warp
    by_gradient: float
    controls: np.ndarray  # of the second nucleus, (field,)


@cache
def _program(sign: float) -> Callable[..., tuple[Array, ...]]:
    """``(places, (distance, zeta, response)) -> log|ψ| and the parts of `Averaged`` at each."""
    psi = two_centres(sign)

    def parts(r: Array, given: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        distance, zeta, response = given
        one = sample_of(psi, protons(distance), r, zeta)
        one = replace(one, response=response)
        slopes = forces.slopes_of_log_psi(one)
        plain = forces.pulay(forces.warp(r, one.nuclei.positions), slopes.electrons, slopes.nuclei)
        found = forces.measure(one)
        scores = jnp.concatenate([plain[1, 2:], found.score[1, 2], slopes.nuclei[1, 2:]])
        parts = found.energy, found.local[:, 2], scores, found.controls[1, 2]
        return psi(zeta, r, one.nuclei).log_abs, *parts

    return jax.jit(jax.vmap(parts, (0, None)))


@cache
def averaged(
    sign: float, distance: float = DISTANCE, zeta: float = ZETA, response: float = 0.0
) -> Averaged:
    """All that forces are made of; `response` is dζ/dz of the second nucleus."""
    given = distance, zeta, jnp.zeros((6, 1)).at[5, 0].set(response)
    r, weights = quadrature(distance)
    log_abs, energies, local, scores, zero = _program(sign)(r, given)
    weights = np.exp(2.0 * log_abs) * weights
    weights /= weights.sum()
    energy = float(weights @ energies)
    pulay = -2.0 * np.asarray((weights * (energies - energy)) @ scores)
    means = np.tensordot(weights, local, 1), np.tensordot(weights, zero, 1)
    return Averaged(energy, means[0], pulay[:3], float(pulay[4]), float(pulay[3]), means[1])


def exact_force(sign: float, response: float = 0.0) -> float:
    """−dE/dR from energies at four distances, where ζ changes with R by `response`."""
    h = 5e-3

    def energy(k: int) -> float:
        return averaged(sign, DISTANCE + k * h, ZETA + k * h * response).energy

    near, far = ((energy(k) - energy(-k)) / (2.0 * k * h) for k in (1, 2))
    return -(4.0 * near - far) / 3.0
