"""Exponential envelopes: they make every orbital decay away from the nuclei."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.ansatz.positive import decay


def shell(orbital: int) -> int:
    """Principal quantum number of the shell that holds the given orbital (0, 1, …) of one spin."""
    n, filled = 1, 1
    while orbital >= filled:
        n += 1
        filled += n * n
    return n


SLOWEST = 1.0
"""In 1/bohr, the first decay at least: a molecule's density falls off as exp(−2 √(2I) r), I being
the ionization energy and √(2I) mostly near this. Z / n of a hydrogen beside heavier atoms, ½ or
less, leaves electrons on their way out, where Hartree–Fock has none: pretraining, which samples its
density, does not see them, and training hardly; in water it was one walker of ten."""


def log_slater_exponents(
    charges: tuple[int, ...], columns: tuple[int, ...]
) -> Callable[..., Float[Array, "nuc det orb"]]:
    """Initializer of log ζ, ζ = Z / n: hydrogenic decay, n the shell of each column's orbital.

    But no slower than `SLOWEST`.
    """

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
        del key
        zeta = jnp.array([[charge / shell(orbital) for orbital in columns] for charge in charges])
        zeta = jnp.maximum(zeta, SLOWEST)
        return jnp.broadcast_to(jnp.log(zeta)[:, None, :], shape).astype(dtype)

    return init


class IsotropicEnvelope(nn.Module):
    """Σ_I π_I exp(−ζ_I |r − R_I|) for every determinant and orbital (arXiv:1909.02487, eq. 6).

    The parameter is log ζ: a decay of the wrong sign could not be normalized, and one walker that
    found the growing tail would run away with the gradient.
    """

    charges: tuple[int, ...]
    determinants: int
    columns: tuple[int, ...]  # for each orbital, its index within its spin

    @nn.compact
    def __call__(self, d_en: Float[Array, "elec nuc"]) -> Float[Array, "elec det orb"]:
        """Envelopes from the electron–nucleus distances of one walker."""
        shape = (len(self.charges), self.determinants, len(self.columns))
        init = log_slater_exponents(self.charges, self.columns)
        zeta = decay(self.param("log_zeta", init, shape, d_en.dtype))
        weight = self.param("weight", nn.initializers.ones, shape, d_en.dtype)
        # Determinants and orbitals as one axis: loops over it are long enough for vectors.
        decays = _of_long_rows(jnp.exp, -zeta.reshape(shape[0], -1) * d_en[:, :, None])
        envelopes = jnp.sum(weight.reshape(shape[0], -1) * decays, axis=1)
        return envelopes.reshape(d_en.shape[0], *shape[1:])


def _of_long_rows(f: Callable[[Array], Array], x: Array) -> Array:
    """An elementwise f of x, all of it as one axis: XLA:CPU takes a short one number by number."""
    return fwdlap.kept(f(fwdlap.kept(x.ravel()))).reshape(x.shape)
