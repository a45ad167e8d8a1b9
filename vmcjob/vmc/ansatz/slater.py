"""Slater determinants: each orbital depends on one electron and combines atomic functions."""

from itertools import groupby

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.ansatz.atomic import Radial, State, radials, starts
from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.ansatz.orbitals import by_spin, dense
from vmcjob.vmc.contracts import Nuclei
from vmcjob.vmc.system import System

# Size of random first coefficients; coefficients of starting states are of order one. Enough to
# break symmetries, which a gradient cannot break, and too small to cost energy.
NOISE = 0.01
# Largest factor by which learning may change an exponent, up or down. Without a limit, learning
# makes functions that do not decay, and walkers follow them.
STRONGEST = 4.0


class SlaterOrbitals(nn.Module):
    """The orbitals of one walker; the orbitals of an electron depend on its own position only.

    Each electron starts in a state of the neutral atom that is its home. So the determinants do not
    vanish at the start, and in an atom they are close to the Hartree–Fock determinant. The orbitals
    have their cusps at the nuclei only together with a `ThreeBodyJastrow`.
    """

    system: System
    determinants: int
    full_determinants: bool
    functions: int  # radial functions of each subshell

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Stacks:
        """Matrices of orbitals at the electron positions, in bohr."""
        basis = tuple(radials(self.system, self.functions))
        chi = AtomicFunctions(basis)(r, nuclei)
        spins = [spin for spin, n in enumerate((self.system.n_up, self.system.n_down)) if n]
        blocks = []
        for spin, chi_spin in zip(spins, by_spin(chi, self.system.n_up), strict=True):
            columns = self._columns(spin)
            init = starting_coefficients(basis, columns * self.determinants)
            phi = dense(self.determinants * len(columns), use_bias=False, init=init)(chi_spin)
            shape = (chi_spin.shape[0], self.determinants, len(columns))
            blocks.append(jnp.swapaxes(phi.reshape(shape), 0, 1))
        return (jnp.concatenate(blocks, axis=1),) if self.full_determinants else tuple(blocks)

    def _columns(self, spin: int) -> list[State | None]:
        """The first state of each orbital in a spin's rows; None for orbitals of the other spin."""
        if not self.full_determinants:
            return [*starts(self.system, spin)]
        both = [(s, state) for s in (0, 1) for state in starts(self.system, s)]
        return [state if s == spin else None for s, state in both]


class AtomicFunctions(nn.Module):
    """χ(x) = S(ζx) [1 + (ζ/Z + l/(l+1)) (1 − exp(−Z|x|))] exp(−ζ|x|), with x = r − R.

    S is a real solid harmonic of degree l. `ThreeBodyJastrow` multiplies all orbitals by exp(J) = 1
    / (2 − exp(−Z|x|)). Then the radial part has the slope −Z/(l+1) at the nucleus, Kato's cusp, for
    any exponent ζ. If ζ = Z/(l+1), the product is an eigenstate of the bare nucleus: 1s, 2p, 3d.
    At a nucleus with a core, the term l/(l+1) is left out, and the slope is zero.
    """

    radials: tuple[Radial, ...]  # sorted by angular momentum

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, "elec chi"]:
        """All atomic functions at all electrons of one walker."""
        first_zeta = jnp.array([radial.zeta for radial in self.radials], r.dtype)
        stretch = self.param("stretch", nn.initializers.zeros, first_zeta.shape, r.dtype)
        zetas = first_zeta * STRONGEST ** nn.tanh(stretch)
        parts, done = [], 0
        for l, group in groupby(self.radials, lambda radial: radial.subshell.l):  # noqa: E741
            shells = list(group)
            homes = np.array([radial.nucleus for radial in shells])
            zeta = zetas[done : (done := done + len(homes))]
            charge = nuclei.charges[homes]
            x = r[:, None] - nuclei.positions[homes]
            d = jnp.linalg.norm(x, axis=-1)
            core = 1.0 - jnp.exp(-charge * d)
            radial = (1.0 + (zeta / charge + _slope(shells, r.dtype)) * core) * jnp.exp(-zeta * d)
            chi = radial[..., None] * solid_harmonics(l, zeta[:, None] * x)
            parts.append(chi.reshape(r.shape[0], -1))
        return jnp.concatenate(parts, axis=-1)


def _slope(shells: list[Radial], dtype: jnp.dtype) -> float | Array:
    """l / (l + 1) of functions of one l; 0 for those around a nucleus with a core."""
    l = shells[0].subshell.l  # noqa: E741
    if not any(radial.has_core for radial in shells):
        return l / (l + 1)
    return jnp.array([0.0 if radial.has_core else l / (l + 1) for radial in shells], dtype)


def solid_harmonics(l: int, x: Float[Array, "*some 3"]) -> Float[Array, "*some m"]:  # noqa: E741
    """Real solid harmonics of degree 0, 1 or 2; all of one degree have the same norm.

    1;  x, y, z;  xy, yz, zx, (x² − y²)/2, (2z² − x² − y²)/√12.
    """
    if l == 0:
        return jnp.ones((*x.shape[:-1], 1), x.dtype)
    if l == 1:
        return x
    x, y, z = x[..., :1], x[..., 1:2], x[..., 2:]
    planar = 0.5 * (x * x - y * y)
    axial = (2.0 * z * z - x * x - y * y) / 12.0**0.5
    return jnp.concatenate([x * y, y * z, z * x, planar, axial], axis=-1)


def starting_coefficients(
    basis: tuple[Radial, ...], columns: list[State | None]
) -> nn.initializers.Initializer:
    """Initializer of the coefficients: each column is its starting state plus some noise."""
    rows = [
        State(radial.nucleus, radial.subshell, m)
        for radial in basis
        for m in range(2 * radial.subshell.l + 1)
    ]
    first = np.zeros((len(rows), len(columns)))
    for place, column in enumerate(columns):
        if column is not None:
            first[rows.index(column), place] = 1.0

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
        return jnp.asarray(first, dtype) + NOISE * jax.random.normal(key, shape, dtype)

    return init
