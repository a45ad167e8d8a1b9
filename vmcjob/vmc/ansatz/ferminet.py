"""FermiNet: determinants of orbitals that each depend on all electrons (arXiv:1909.02487)."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.ansatz.distances import features, nuclear_distances, rescaled
from vmcjob.vmc.ansatz.orbitals import OrbitalMatrices, by_spin, dense
from vmcjob.vmc.ansatz.pairs import pair_distances
from vmcjob.vmc.contracts import Nuclei
from vmcjob.vmc.system import System


class FermiNet(nn.Module):
    """The orbitals of one walker.

    A one-electron stream h_i and a two-electron stream h_ij pass through layers. The layers mix the
    streams by means over each spin, which keeps them equivariant under exchange of like spins.

    With `rescale_inputs`, vectors and distances enter as in `rescaled`. Without, a distant electron
    shifts the means, and so all orbitals, far beyond what training has seen. In water with a core
    potential, ψ became large where one electron is 40 bohr away.
    """

    system: System
    determinants: int
    full_determinants: bool
    layers: int
    one_electron_width: int
    two_electron_width: int
    core_holes: bool = True  # where there are cores
    rescale_inputs: bool = False

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Stacks:
        """Matrices of orbitals at the electron positions, in bohr."""
        r_en = r[:, None] - nuclei.positions
        d_en = nuclear_distances(self.system, r_en)
        as_inputs = rescaled if self.rescale_inputs else features
        h_one = as_inputs(r_en, d_en).reshape(r.shape[0], -1)
        r_ee = r[:, None] - r[None]
        h_two = as_inputs(r_ee, pair_distances(r_ee))  # zero for i = j
        for layer in range(self.layers):
            h_one_next = self._one_electron_layer(h_one, h_two)
            if layer < self.layers - 1:
                h_two_next = fwdlap.tanh(dense(self.two_electron_width)(h_two))
                h_two = _residual(h_two, h_two_next)
            h_one = _residual(h_one, h_one_next)
        shape = self.determinants, self.full_determinants, self.core_holes
        return OrbitalMatrices(self.system, *shape)(h_one, d_en)

    def _one_electron_layer(
        self, h_one: Float[Array, "elec f"], h_two: Float[Array, "elec elec g"]
    ) -> Float[Array, "elec width"]:
        """tanh of one affine map of (h_i, mean_j h_ij by spin, mean_j h_j by spin).

        Means over all electrons are the same for each i, so their product is computed once and
        broadcast.
        """
        n_up, width = self.system.n_up, self.one_electron_width
        own = [h_one, *(jnp.mean(part, axis=1) for part in by_spin(h_two, n_up, axis=1))]
        shared = [jnp.mean(part, axis=0) for part in by_spin(h_one, n_up)]
        per_electron = dense(width)(jnp.concatenate(own, axis=-1))
        for_all = dense(width, use_bias=False)(jnp.concatenate(shared))
        return fwdlap.tanh(per_electron + for_all)


def _residual(x: Array, y: Array) -> Array:
    """x + y if the widths agree, else y."""
    return x + y if x.shape == y.shape else y
