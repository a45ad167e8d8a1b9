"""FermiNet: determinants of orbitals that each depend on all electrons (arXiv:1909.02487)."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.ansatz.determinants import log_abs_sum_det
from vmcjob.vmc.ansatz.envelopes import IsotropicEnvelope
from vmcjob.vmc.ansatz.jastrow import CuspJastrow
from vmcjob.vmc.system import System


class FermiNet(nn.Module):
    """log|ψ| of one walker.

    A one-electron stream h_i and a two-electron stream h_ij pass through layers that mix them by
    spin-wise means, which keeps them equivariant under exchange of like spins; full determinants
    over both spins make ψ antisymmetric. A Jastrow factor, if wanted, adds the exact
    electron–electron cusp that the streams would have to learn.
    """

    system: System
    determinants: int
    layers: int
    one_electron_width: int
    two_electron_width: int
    jastrow: bool

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"]) -> Float[Array, ""]:
        """log|ψ(r)| from the electron positions in bohr."""
        r_en = r[:, None] - jnp.array(self.system.nuclei, r.dtype)
        d_en = jnp.linalg.norm(r_en, axis=-1)
        h_one = jnp.concatenate([r_en, d_en[..., None]], axis=-1).reshape(r.shape[0], -1)
        h_two = pair_features(r)
        for layer in range(self.layers):
            h_one_next = self._one_electron_layer(h_one, h_two)
            if layer < self.layers - 1:
                h_two = _residual(h_two, nn.tanh(self._dense(self.two_electron_width)(h_two)))
            h_one = _residual(h_one, h_one_next)
        log_abs = log_abs_sum_det(self._orbitals(h_one, d_en))
        return log_abs + CuspJastrow(self.system.n_up)(r) if self.jastrow else log_abs

    def _one_electron_layer(
        self, h_one: Float[Array, "elec f"], h_two: Float[Array, "elec elec g"]
    ) -> Float[Array, "elec width"]:
        """tanh of one affine map of (h_i, mean_j h_ij by spin, mean_j h_j by spin).

        The means over all electrons are the same for every i, so their share of the product is
        done once and broadcast.
        """
        own = [h_one, *(jnp.mean(part, axis=1) for part in self._by_spin(h_two, axis=1))]
        shared = [jnp.mean(part, axis=0) for part in self._by_spin(h_one, axis=0)]
        width = self.one_electron_width
        per_electron = self._dense(width)(jnp.concatenate(own, axis=-1))
        for_all = self._dense(width, use_bias=False)(jnp.concatenate(shared))
        return nn.tanh(per_electron + for_all)

    def _orbitals(
        self, h_one: Float[Array, "elec f"], d_en: Float[Array, "elec nuc"]
    ) -> Float[Array, "det elec elec"]:
        """The square matrices of orbitals: rows are electrons, with weights of their spin."""
        n, spins = self.system.n_electrons, (self.system.n_up, self.system.n_down)
        columns = tuple(orbital for count in spins for orbital in range(count))
        rows = []
        parts = zip(self._by_spin(h_one, axis=0), self._by_spin(d_en, axis=0), strict=True)
        for h, d in parts:
            phi = self._dense(self.determinants * n)(h).reshape(-1, self.determinants, n)
            rows.append(phi * IsotropicEnvelope(self.system.charges, self.determinants, columns)(d))
        return jnp.swapaxes(jnp.concatenate(rows), 0, 1)

    def _dense(self, width: int, use_bias: bool = True) -> nn.Dense:
        """An affine layer whose parameters have the process's precision, not flax's float32."""
        return nn.Dense(width, use_bias=use_bias, param_dtype=jnp.zeros(()).dtype)

    def _by_spin(self, x: Array, axis: int) -> list[Array]:
        """Slices of spin up and down along an electron axis; a spin without electrons has none."""
        return [part for part in jnp.split(x, [self.system.n_up], axis=axis) if part.shape[axis]]


def pair_features(r: Float[Array, "elec 3"]) -> Float[Array, "elec elec 4"]:
    """(r_i − r_j, |r_i − r_j|) of all pairs of one walker; zero for an electron and itself."""
    r_ee = r[:, None] - r[None]
    # The norm has no derivative at zero: on the diagonal another vector's is taken, and dropped.
    diagonal = jnp.eye(r.shape[0], dtype=r.dtype)
    d_ee = jnp.linalg.norm(r_ee + diagonal[..., None], axis=-1) * (1.0 - diagonal)
    return jnp.concatenate([r_ee, d_ee[..., None]], axis=-1)


def _residual(x: Array, y: Array) -> Array:
    """x + y where the widths agree, else y."""
    return x + y if x.shape == y.shape else y
