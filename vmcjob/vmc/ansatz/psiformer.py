"""Psiformer: determinants of orbitals that attend to all electrons (arXiv:2211.13672)."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.ansatz.orbitals import OrbitalMatrices, dense
from vmcjob.vmc.contracts import Nuclei
from vmcjob.vmc.system import System


class Psiformer(nn.Module):
    """The orbitals of one walker.

    One stream h_i of features passes through layers of self-attention. Each electron brings its
    spin as a feature, so that exchange of like spins, and of no others, exchanges rows of h. All
    that electrons know of each other they learn by attention; no pair enters as such, and the
    electron–electron cusps are left to the Jastrow factor.

    Layers follow the authors' own program: h ← h + attention(h), h ← h + tanh(W' tanh(W h)), where
    `layer_norm` normalizes the features after either sum.
    """

    system: System
    determinants: int
    full_determinants: bool
    layers: int
    heads: int
    head_width: int
    mlp_width: int
    layer_norm: bool

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Stacks:
        """Matrices of orbitals from the electron positions in bohr."""
        r_en = r[:, None] - nuclei.positions
        d_en = jnp.linalg.norm(r_en, axis=-1)
        h = dense(self.heads * self.head_width, use_bias=False)(self._features(r_en, d_en))
        for _ in range(self.layers):
            h = self._normalized(h + SelfAttention(self.heads, self.head_width)(h))
            hidden = nn.tanh(dense(self.mlp_width)(h))
            h = self._normalized(h + nn.tanh(dense(h.shape[-1])(hidden)))
        return OrbitalMatrices(self.system, self.determinants, self.full_determinants)(h, d_en)

    def _features(
        self, r_en: Float[Array, "elec nuc 3"], d_en: Float[Array, "elec nuc"]
    ) -> Float[Array, "elec f"]:
        """(r − R, |r − R|) log(1 + |r − R|) / |r − R| for every nucleus, then the spin, ±1.

        Scaled so, features of an electron that leaves grow slowly enough for attention.
        """
        n_electrons, n_up = r_en.shape[0], self.system.n_up
        growth = jnp.log1p(d_en)
        # At a nucleus 0 / 0 has the limit 1, but r − R vanishes there and takes any finite number.
        scale = growth / jnp.maximum(d_en, jnp.finfo(d_en.dtype).tiny)
        near = jnp.concatenate([r_en * scale[..., None], growth[..., None]], axis=-1)
        spin = jnp.where(jnp.arange(n_electrons) < n_up, 1.0, -1.0).astype(r_en.dtype)
        return jnp.concatenate([near.reshape(n_electrons, -1), spin[:, None]], axis=-1)

    def _normalized(self, h: Float[Array, "elec f"]) -> Float[Array, "elec f"]:
        if not self.layer_norm:
            return h
        return nn.LayerNorm(param_dtype=h.dtype, use_fast_variance=False)(h)


class SelfAttention(nn.Module):
    """softmax(Q Kᵀ / √d) V of every head, side by side, and one linear map of it all.

    Q, K and V are linear maps of the features, d wide in each head (arXiv:1706.03762, section 3.2).
    """

    heads: int
    head_width: int

    @nn.compact
    def __call__(self, h: Float[Array, "elec f"]) -> Float[Array, "elec f"]:
        """What each electron of one walker learns from all of them, itself included."""
        shape = (h.shape[0], self.heads, self.head_width)
        width = self.heads * self.head_width
        q, k, v = (dense(width, use_bias=False)(h).reshape(shape) for _ in range(3))
        logits = jnp.einsum("ihd,jhd->hij", q, k) / self.head_width**0.5
        mixed = jnp.einsum("hij,jhd->ihd", nn.softmax(logits, axis=-1), v)
        return dense(h.shape[-1], use_bias=False)(mixed.reshape(h.shape[0], width))
