"""Sums of determinants of orbitals, computed as logarithms and signs."""

import math

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.contracts import Psi

Stacks = tuple[Float[Array, "det _ _"], ...]
"""Square matrices of orbitals: one stack for all electrons, or one for each spin.

ψ is the sum over `det` of the products of their determinants.
"""


def sum_of_determinants(stacks: Stacks) -> Psi:
    """Σ_k Π_s det Φ_sk of one walker.

    The largest product is factored out of the sum, so that no determinant underflows or overflows.
    """
    parts = [fwdlap.slogdet(stack) for stack in stacks]
    signs = jnp.asarray(math.prod(part[0] for part in parts))
    return _sum(signs, jnp.asarray(sum(part[1] for part in parts)))


def sum_of_two(first: Psi, second: Psi) -> Psi:
    """ψ + ψ′ of one walker."""
    terms = [jnp.stack(pair) for pair in zip(first, second, strict=True)]
    return _sum(*terms)


def _sum(sign: Float[Array, " term"], log_abs: Float[Array, " term"]) -> Psi:
    """The sum of numbers that are given by their signs and logarithms."""
    largest = jnp.max(log_abs)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)  # −∞ − (−∞) would be NaN
    total = jnp.sum(sign * jnp.exp(log_abs - largest))
    return Psi(jnp.sign(total), largest + jnp.log(jnp.abs(total)))
