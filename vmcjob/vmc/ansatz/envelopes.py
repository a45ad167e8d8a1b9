"""Exponential envelopes, which make each orbital decay away from the nuclei."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.ansatz.positive import decay


def shell(orbital: int) -> int:
    """Principal quantum number of the shell of an orbital (0, 1, …) of one spin."""
    n, filled = 1, 1
    while orbital >= filled:
        n += 1
        filled += n * n
    return n


SLOWEST = 1.0
"""Smallest initial decay constant, in 1/bohr. A molecule's density falls off as exp(−2 √(2I) r)
with the ionization energy I, and √(2I) is mostly near 1. For hydrogen beside heavier atoms, Z / n
is ½ or less, and electrons then escape to places where Hartree–Fock has none. Pretraining samples
the Hartree–Fock density and does not see these electrons. In water it was one walker of ten."""


def log_slater_exponents(
    charges: tuple[int, ...], columns: tuple[int, ...], core_orbitals: tuple[int, ...] = ()
) -> Callable[..., Float[Array, "nuc det orb"]]:
    """Initializer of log ζ, ζ = Z / n: hydrogenic decay, with n the shell of the column's orbital.

    ζ is at least `SLOWEST`. Shells of a nucleus with a core begin above the core's orbitals.
    """
    below = core_orbitals or (0,) * len(charges)

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
        del key
        nuclei = zip(charges, below, strict=True)
        zeta = jnp.array(
            [[charge / shell(n + orbital) for orbital in columns] for charge, n in nuclei]
        )
        zeta = jnp.maximum(zeta, SLOWEST)
        return jnp.broadcast_to(jnp.log(zeta)[:, None, :], shape).astype(dtype)

    return init


class IsotropicEnvelope(nn.Module):
    """Σ_I π_I exp(−ζ_I |r − R_I|) for each determinant and orbital (arXiv:1909.02487, eq. 6).

    The parameter is log ζ, because a negative ζ could not be normalized: a single walker in the
    growing tail would dominate the gradient.
    """

    charges: tuple[int, ...]
    determinants: int
    columns: tuple[int, ...]  # for each orbital, its index within its spin
    core_orbitals: tuple[int, ...] = ()  # of each nucleus, or empty if there are none

    @nn.compact
    def __call__(self, d_en: Float[Array, "elec nuc"]) -> Float[Array, "elec det orb"]:
        """Envelopes from the electron–nucleus distances of one walker."""
        shape = (len(self.charges), self.determinants, len(self.columns))
        init = log_slater_exponents(self.charges, self.columns, self.core_orbitals)
        zeta = decay(self.param("log_zeta", init, shape, d_en.dtype))
        weight = self.param("weight", nn.initializers.ones, shape, d_en.dtype)
        # Determinants and orbitals are one axis, so that loops over it are long enough for vectors.
        decays = fwdlap.elementwise(jnp.exp, -zeta.reshape(shape[0], -1) * d_en[:, :, None])
        envelopes = jnp.sum(weight.reshape(shape[0], -1) * decays, axis=1)
        return envelopes.reshape(d_en.shape[0], *shape[1:])
