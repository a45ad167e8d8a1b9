"""Determinants of orbitals of one electron each: learned combinations of atomic functions."""

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

# Of the first coefficients, beside those of the starting states, which are of the order of one:
# enough to break symmetries, which no gradient leaves; too little to cost energy.
NOISE = 0.01
# How far learning may change an exponent: by this factor, up or down. With a free hand it makes
# functions that do not decay, and walkers follow them.
STRONGEST = 4.0


class SlaterOrbitals(nn.Module):
    """The orbitals of one walker; those of an electron depend on its own position alone.

    Each electron starts in a state of the neutral atom that is its home, so that the determinants
    do not vanish at the start, and those of an atom are close to its Hartree–Fock determinant.
    Only beside a `ThreeBodyJastrow` do the orbitals have their cusps at the nuclei.
    """

    system: System
    determinants: int
    full_determinants: bool
    functions: int  # radial functions of each subshell

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Stacks:
        """Matrices of orbitals from the electron positions in bohr."""
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
        """For each orbital of a block of rows its first state; the other spin's have none."""
        if not self.full_determinants:
            return [*starts(self.system, spin)]
        both = [(s, state) for s in (0, 1) for state in starts(self.system, s)]
        return [state if s == spin else None for s, state in both]


class AtomicFunctions(nn.Module):
    """χ(x) = S(ζx) [1 + (ζ/Z + l/(l+1)) (1 − exp(−Z|x|))] exp(−ζ|x|), with x = r − R.

    S is a real solid harmonic of degree l. Times exp(J) = 1 / (2 − exp(−Z|x|)), which
    `ThreeBodyJastrow` brings for all orbitals alike, the slope of the radial part is −Z/(l+1) at
    the nucleus, which is Kato's cusp, whatever the exponent ζ; and where ζ = Z/(l+1) the product is
    an eigenstate of the bare nucleus: 1s, 2p, 3d.
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
            homes = np.array([radial.nucleus for radial in group])
            zeta = zetas[done : (done := done + len(homes))]
            charge = nuclei.charges[homes]
            x = r[:, None] - nuclei.positions[homes]
            d = jnp.linalg.norm(x, axis=-1)
            core = 1.0 - jnp.exp(-charge * d)
            radial = (1.0 + (zeta / charge + l / (l + 1)) * core) * jnp.exp(-zeta * d)
            chi = radial[..., None] * solid_harmonics(l, zeta[:, None] * x)
            parts.append(chi.reshape(r.shape[0], -1))
        return jnp.concatenate(parts, axis=-1)


def solid_harmonics(l: int, x: Float[Array, "*some 3"]) -> Float[Array, "*some m"]:  # noqa: E741
    """Real solid harmonics of degree 0, 1 or 2, all of a degree with the same norm.

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
    """Initializer of the coefficients: each column is its state, and a little of all others."""
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
