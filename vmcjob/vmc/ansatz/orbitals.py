"""Matrices of orbitals from features of electrons, shared by all networks."""

from itertools import pairwise
from typing import Final

import flax.linen as nn
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.ansatz.envelopes import IsotropicEnvelope
from vmcjob.vmc.ansatz.holes import CoreHoles, holes_of
from vmcjob.vmc.system import System, core_orbitals

SLIGHT: Final = nn.initializers.variance_scaling(0.01, "fan_in", "truncated_normal")
"""Initializer of kernels a tenth as large as flax's default."""


class OrbitalMatrices(nn.Module):
    """One affine map of the features and one envelope for each spin, determinant and orbital.

    With `core_holes`, envelopes have the holes of `CoreHoles` around nuclei with a core.

    Full determinants contain all electrons and all orbitals. Otherwise each spin has its own
    matrices, and ψ is the sum of the products of both (arXiv:1909.02487, section II C).

    If an electron is the only one of its spin, its orbital begins close to its envelope, and its
    other entries begin near zero. The ground state of one or two such electrons has no node, and
    training finds it from this start without Hartree–Fock.
    """

    system: System
    determinants: int
    full_determinants: bool
    core_holes: bool

    @nn.compact
    def __call__(self, h: Float[Array, "elec f"], d_en: Float[Array, "elec nuc"]) -> Stacks:
        """Matrices of orbitals from features and electron–nucleus distances of one walker."""
        n_up, counts = self.system.n_up, (self.system.n_up, self.system.n_down)
        orbitals = [(spin, column) for spin, n in enumerate(counts) for column in range(n)]
        spins = [spin for spin, n in enumerate(counts) if n]
        holes = holes_of(self.system) if self.core_holes else ()
        blocks = []
        for spin, h_spin, d_spin in zip(spins, by_spin(h, n_up), by_spin(d_en, n_up), strict=True):
            held = [of for of in orbitals if self.full_determinants or of[0] == spin]
            columns = tuple(column for _, column in held)
            shape = (h_spin.shape[0], self.determinants, len(columns))
            width = self.determinants * len(columns)
            if counts[spin] == 1:
                begin = _repeated([float(of[0] == spin) for of in held])
                phi = dense(width, init=SLIGHT, bias_init=begin)(h_spin).reshape(shape)
            else:
                phi = dense(width)(h_spin).reshape(shape)
            own = self.system.charges, self.determinants, columns, core_orbitals(self.system)
            envelope = IsotropicEnvelope(*own)(d_spin)
            if holes:
                envelope *= CoreHoles(holes, self.determinants, len(columns))(d_spin)
            blocks.append(jnp.swapaxes(phi * envelope, 0, 1))
        return (jnp.concatenate(blocks, axis=1),) if self.full_determinants else tuple(blocks)


def _repeated(row: list[float]) -> nn.initializers.Initializer:
    """Initializer of a vector that repeats this row."""

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
        del key
        return jnp.tile(jnp.array(row, dtype), shape[0] // len(row))

    return init


def dense(
    width: int,
    use_bias: bool = True,
    init: nn.initializers.Initializer = nn.linear.default_kernel_init,
    bias_init: nn.initializers.Initializer = nn.initializers.zeros,
) -> nn.Dense:
    """An affine layer with parameters in the process's precision, not flax's default float32."""
    dtype = jnp.zeros(()).dtype
    return nn.Dense(
        width, use_bias=use_bias, param_dtype=dtype, kernel_init=init, bias_init=bias_init
    )


def by_spin(x: Array, n_up: int, axis: int = 0) -> list[Array]:
    """Slices of spin up and down along an electron axis; a spin without electrons has no slice."""
    # Slices, not jnp.split: fwdlap keeps a slice sparse.
    ends = (0, n_up, x.shape[axis])
    parts = [lax.slice_in_dim(x, *bounds, axis=axis) for bounds in pairwise(ends)]
    return [part for part in parts if part.shape[axis]]
