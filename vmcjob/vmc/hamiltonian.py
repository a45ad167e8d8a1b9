"""The Coulomb Hamiltonian of one walker: potentials, kinetic energy, local energy."""

from functools import partial

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.contracts import LocalEnergy, LogPsi, Params
from vmcjob.vmc.system import System


def coulomb_potential(system: System, r: Float[Array, "elec 3"]) -> Float[Array, ""]:
    """Potential energy of one walker, in hartree.

        V = Σ_{i<j} 1/|r_i − r_j| − Σ_{iI} Z_I/|r_i − R_I| + Σ_{I<J} Z_I Z_J/|R_I − R_J|

    Infinite where two particles coincide.
    """
    nuclei = jnp.array(system.nuclei, r.dtype)
    charges = jnp.array(system.charges, r.dtype)
    unit = jnp.ones(r.shape[0], r.dtype)
    v_en = -jnp.sum(charges / jnp.linalg.norm(r[:, None] - nuclei, axis=-1))
    return _repulsion(r, unit) + v_en + _repulsion(nuclei, charges)


def _repulsion(x: Float[Array, "body 3"], q: Float[Array, " body"]) -> Float[Array, ""]:
    """Σ_{i<j} q_i q_j / |x_i − x_j|."""
    i, j = jnp.triu_indices(x.shape[0], k=1)
    return jnp.sum(q[i] * q[j] / jnp.linalg.norm(x[i] - x[j], axis=-1))


def local_kinetic_energy(
    log_psi: LogPsi, params: Params, r: Float[Array, "elec 3"]
) -> Float[Array, ""]:
    """Kinetic energy of one walker, (Tψ)(r) / ψ(r), in hartree.

    With L = log|ψ|, which neither under- nor overflows,

        T_loc = −½ Σ_i ( ∇_i² L + |∇_i L|² ),

    and one forward sweep yields both terms (arXiv:2307.08214).

    Not finite at nodes and coalescence points. This function neither clips nor replaces; clipping
    is for gradients and belongs to `energy.clip`.
    """
    jet = fwdlap.laplacian(partial(log_psi, params))(r)
    return -0.5 * (jet.laplacian + jnp.sum(jet.gradient**2))


def make_local_energy(log_psi: LogPsi, system: System) -> LocalEnergy:
    """``(params, r) -> E_loc`` of one walker in hartree: kinetic energy plus Coulomb potential."""

    def local_energy(params: Params, r: Float[Array, "elec 3"]) -> Float[Array, ""]:
        return local_kinetic_energy(log_psi, params, r) + coulomb_potential(system, r)

    return local_energy
