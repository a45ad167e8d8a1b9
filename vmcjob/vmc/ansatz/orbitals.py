"""From features of electrons to the matrices of orbitals, which all networks share."""

from itertools import pairwise

import flax.linen as nn
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.ansatz.envelopes import IsotropicEnvelope
from vmcjob.vmc.system import System


class OrbitalMatrices(nn.Module):
    """One affine map of the features and one envelope for each spin, determinant and orbital.

    Full determinants hold all electrons and all their orbitals; otherwise each spin has matrices of
    its own, and ψ sums the products of both (arXiv:1909.02487, section II C).
    """

    system: System
    determinants: int
    full_determinants: bool

    @nn.compact
    def __call__(self, h: Float[Array, "elec f"], d_en: Float[Array, "elec nuc"]) -> Stacks:
        """Matrices of orbitals from features and electron–nucleus distances of one walker."""
        n_up, counts = self.system.n_up, (self.system.n_up, self.system.n_down)
        all_columns = tuple(orbital for count in counts for orbital in range(count))
        blocks = []
        for h_spin, d_spin in zip(by_spin(h, n_up), by_spin(d_en, n_up), strict=True):
            columns = all_columns if self.full_determinants else tuple(range(h_spin.shape[0]))
            shape = (h_spin.shape[0], self.determinants, len(columns))
            phi = dense(self.determinants * len(columns))(h_spin).reshape(shape)
            envelope = IsotropicEnvelope(self.system.charges, self.determinants, columns)(d_spin)
            blocks.append(jnp.swapaxes(phi * envelope, 0, 1))
        return (jnp.concatenate(blocks, axis=1),) if self.full_determinants else tuple(blocks)


def dense(
    width: int,
    use_bias: bool = True,
    init: nn.initializers.Initializer = nn.linear.default_kernel_init,
) -> nn.Dense:
    """An affine layer whose parameters have the process's precision, not flax's float32."""
    dtype = jnp.zeros(()).dtype
    return nn.Dense(width, use_bias=use_bias, param_dtype=dtype, kernel_init=init)


def by_spin(x: Array, n_up: int, axis: int = 0) -> list[Array]:
    """Slices of spin up and down along an electron axis; a spin without electrons has none."""
    # Slices, not jnp.split: fwdlap keeps a slice as sparse as it was, and has no rule for a split.
    ends = (0, n_up, x.shape[axis])
    parts = [lax.slice_in_dim(x, *bounds, axis=axis) for bounds in pairwise(ends)]
    return [part for part in parts if part.shape[axis]]
