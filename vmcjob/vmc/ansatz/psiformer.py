"""Psiformer: determinants of orbitals from self-attention over all electrons (arXiv:2211.13672)."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.ansatz.distances import nuclear_distances, rescaled
from vmcjob.vmc.ansatz.orbitals import OrbitalMatrices, dense
from vmcjob.vmc.contracts import Nuclei
from vmcjob.vmc.system import System


class Psiformer(nn.Module):
    """The orbitals of one walker.

    One stream h_i of features passes through layers of self-attention. Each electron has its spin
    as a feature, so that only an exchange of like spins exchanges rows of h. Electrons depend on
    each other by attention only. There are no pair features, and the Jastrow factor provides the
    electron–electron cusps.

    Layers follow the authors' program: h ← h + attention(h), h ← h + tanh(W' tanh(W h)).
    `layer_norm` normalizes the features after each sum.
    """

    system: System
    determinants: int
    full_determinants: bool
    layers: int
    heads: int
    head_width: int
    mlp_width: int
    layer_norm: bool
    core_holes: bool = True  # where there are cores

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Stacks:
        """Matrices of orbitals at the electron positions, in bohr."""
        r_en = r[:, None] - nuclei.positions
        d_en = nuclear_distances(self.system, r_en)
        h = dense(self.heads * self.head_width, use_bias=False)(self._features(r_en, d_en))
        for _ in range(self.layers):
            h = self._normalized(h + SelfAttention(self.heads, self.head_width)(h))
            hidden = nn.tanh(dense(self.mlp_width)(h))
            h = self._normalized(h + nn.tanh(dense(h.shape[-1])(hidden)))
        shape = self.determinants, self.full_determinants, self.core_holes
        return OrbitalMatrices(self.system, *shape)(h, d_en)

    def _features(
        self, r_en: Float[Array, "elec nuc 3"], d_en: Float[Array, "elec nuc"]
    ) -> Float[Array, "elec f"]:
        """The `rescaled` (r − R, |r − R|) for each nucleus, then the spin, ±1.

        Without the scaling, features of a distant electron would be too large for attention.
        """
        n_electrons, n_up = r_en.shape[0], self.system.n_up
        near = rescaled(r_en, d_en)
        spin = jnp.where(jnp.arange(n_electrons) < n_up, 1.0, -1.0).astype(r_en.dtype)
        return jnp.concatenate([near.reshape(n_electrons, -1), spin[:, None]], axis=-1)

    def _normalized(self, h: Float[Array, "elec f"]) -> Float[Array, "elec f"]:
        if not self.layer_norm:
            return h
        return nn.LayerNorm(param_dtype=h.dtype, use_fast_variance=False)(h)


class SelfAttention(nn.Module):
    """softmax(Q Kᵀ / √d) V of each head, concatenated, then one linear map.

    Q, K and V are linear maps of the features, of width d in each head (arXiv:1706.03762, section
    3.2).
    """

    heads: int
    head_width: int

    @nn.compact
    def __call__(self, h: Float[Array, "elec f"]) -> Float[Array, "elec f"]:
        """The attention of each electron of one walker to all electrons, itself included."""
        shape = (h.shape[0], self.heads, self.head_width)
        width = self.heads * self.head_width
        q, k, v = (dense(width, use_bias=False)(h).reshape(shape) for _ in range(3))
        logits = jnp.einsum("ihd,jhd->hij", q, k) / self.head_width**0.5
        mixed = jnp.einsum("hij,jhd->ihd", nn.softmax(logits, axis=-1), v)
        return dense(h.shape[-1], use_bias=False)(mixed.reshape(h.shape[0], width))
