"""Jastrow factors: cusps, and the correlation of two electrons near a nucleus."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.ansatz.pairs import pair_distances
from vmcjob.vmc.ansatz.positive import decay, length
from vmcjob.vmc.contracts import Nuclei


class CuspJastrow(nn.Module):
    """log of a symmetric factor with Kato's electron–electron cusp, for one walker.

        J = −Σ_{i<j} c α² / (α + r_ij),    c = ¼ for like spins, ½ for unlike ones,

    with one learned length α for like and one for unlike pairs (arXiv:2211.13672, eq. 5). The slope
    at r_ij = 0 is c, and J vanishes for distant electrons. Only the absolute value of the parameter
    counts: with a negative length the factor would have a pole, where walkers would gather.
    """

    n_up: int

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, ""]:
        """J at the electron positions, in bohr."""
        del nuclei
        n_electrons = r.shape[0]
        i, j = np.triu_indices(n_electrons, k=1)
        like = (i < self.n_up) == (j < self.n_up)
        alpha = length(self.param("alpha", nn.initializers.ones, (2,), r.dtype))
        by_pair = jnp.where(like, alpha[0], alpha[1])
        cusp = jnp.where(like, 0.25, 0.5).astype(r.dtype)
        distance = jnp.linalg.norm(r[i] - r[j], axis=-1)
        return -jnp.sum(cusp * by_pair**2 / (by_pair + distance))


class ThreeBodyJastrow(nn.Module):
    """log of a symmetric factor of electrons, pairs, and pairs near nuclei; for one walker.

        J = J_ee + Σ_iI [ −log(2 − exp(−Z_I r_iI)) + Σ_p a_Ip t_iI^p ] + Σ_{i≠j} Σ_k b_k s_ij^k
          + Σ_I Σ_{i≠j} Σ_pqk c_Ipqk t_iI^p t_jI^q s_ij^k

    with J_ee of `CuspJastrow`, scaled distances t = 1 − exp(−κ r_iI) and s = 1 − exp(−λ r_ij), and
    learned κ, λ > 0. Like and unlike spins have separate b and c. Powers are 2 to `order`, and also
    q = 0 and k = 0. No power has a slope where two particles meet. So both cusps are exact for any
    parameters: the cusp of J_ee, and −Z_I at the nuclei. The logarithm is left out for nuclei
    with a core, where ψ has no cusp.

    The polynomials are those of Filippi and Umrigar (J. Chem. Phys. 105, 213 (1996)), without the
    linear terms, whose slopes would have to cancel.
    """

    n_up: int
    order: int  # 1: only the cusps
    bare: tuple[int, ...] | None = None  # nuclei with a cusp; None for all of them

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, ""]:
        """J at the electron positions, in bohr."""
        d_en = jnp.linalg.norm(r[:, None] - nuclei.positions, axis=-1)
        near = jnp.sum(jnp.log(2.0 - jnp.exp(-self._with_cusp(nuclei.charges * d_en))))
        cusps = CuspJastrow(self.n_up)(r, nuclei) - near
        if self.order < 2:
            return cusps
        d_ee = pair_distances(r[:, None] - r)
        t, s = self._powers("log_kappa", d_en), self._powers("log_lambda", d_ee)
        return cusps + self._of_one(t) + self._of_two(s) + self._of_three(t, s)

    def _with_cusp(self, by_nucleus: Float[Array, "elec nuc"]) -> Float[Array, "elec bare"]:
        return by_nucleus if self.bare is None else by_nucleus[:, np.array(self.bare, int)]

    def _powers(self, name: str, d: Float[Array, "a b"]) -> Float[Array, "a b power"]:
        """Powers, from the second on, of distances that are scaled to the range from 0 to 1."""
        scale = decay(self.param(name, nn.initializers.zeros, (), d.dtype))
        scaled = 1.0 - jnp.exp(-scale * d[..., None])
        return jnp.concatenate([scaled**power for power in range(2, self.order + 1)], axis=-1)

    def _of_one(self, t: Float[Array, "elec nuc p"]) -> Float[Array, ""]:
        a = self.param("a", nn.initializers.zeros, t.shape[1:], t.dtype)
        return jnp.sum(a * t)

    def _of_two(self, s: Float[Array, "elec elec k"]) -> Float[Array, ""]:
        by_pair = self._by_kind_of_pair(s)
        b = self.param("b", nn.initializers.zeros, by_pair.shape[2:], s.dtype)
        return jnp.sum(b * by_pair)

    def _of_three(
        self, t: Float[Array, "elec nuc p"], s: Float[Array, "elec elec k"]
    ) -> Float[Array, ""]:
        t_or_one, by_pair = _and_one(t), self._by_kind_of_pair(_and_one(s))
        shape = (*t.shape[1:], t_or_one.shape[2], by_pair.shape[2])
        c = self.param("c", nn.initializers.zeros, shape, t.dtype)
        weight = jnp.einsum("iIp,Ipqk->iIqk", t, c)
        return jnp.sum(jnp.einsum("iIqk,jIq->ijk", weight, t_or_one) * by_pair)

    def _by_kind_of_pair(self, s: Float[Array, "elec elec k"]) -> Float[Array, "elec elec two_k"]:
        """Features of like pairs, then of unlike pairs; zero for pairs of the other kind."""
        n_electrons = s.shape[0]
        is_up = jnp.arange(n_electrons) < self.n_up
        like = (is_up[:, None] == is_up) & ~jnp.eye(n_electrons, dtype=bool)
        unlike = is_up[:, None] != is_up
        return jnp.concatenate([s * like[..., None], s * unlike[..., None]], axis=-1)


def _and_one(x: Float[Array, "a b power"]) -> Float[Array, "a b more"]:
    """The powers, with the power zero in front."""
    return jnp.concatenate([jnp.ones_like(x[..., :1]), x], axis=-1)
