"""The electron–electron cusp as a Jastrow factor."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


class CuspJastrow(nn.Module):
    """log of a symmetric factor with Kato's electron–electron cusp, for one walker.

        J = −Σ_{i<j} c α² / (α + r_ij),    c = ¼ for like spins, ½ for unlike ones,

    with one learned length α for like and one for unlike pairs (arXiv:2211.13672, eq. 5): its slope
    at r_ij = 0 is c, and it vanishes for electrons far apart.
    """

    n_up: int

    @nn.compact
    def __call__(self, r: Float[Array, "elec 3"]) -> Float[Array, ""]:
        """J from the electron positions in bohr."""
        n_electrons = r.shape[0]
        i, j = jnp.triu_indices(n_electrons, k=1)
        like = (i < self.n_up) == (j < self.n_up)
        alpha = self.param("alpha", nn.initializers.ones, (2,), r.dtype)
        length = jnp.where(like, alpha[0], alpha[1])
        cusp = jnp.where(like, 0.25, 0.5).astype(r.dtype)
        distance = jnp.linalg.norm(r[i] - r[j], axis=-1)
        return -jnp.sum(cusp * length**2 / (length + distance))
