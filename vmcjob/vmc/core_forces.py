"""The parts of core potentials in the forces on nuclei; `forces` has the other parts.

With the operator D of the space warp, the non-local part V of a core adds the mean of [D, V]ψ/ψ to
the derivative of the energy: D moves V, and a second part moves back what V makes of D ψ. For an
electron at x with the quadrature points y_q = R_I + d n_q around nucleus I,

    V ψ/ψ = Σ_q K_q ρ_q,    K_q = w_q Σ_l (2l + 1) V_l(d) P_l(n_q·n),    ρ_q = ψ(y_q)/ψ(x)

    [D, V] ψ/ψ = Σ_q ρ_q ( K_q′ + K_q (y_q′ − ω(y_q))·∇L(y_q) )

′ is the change when nucleus A moves along an axis and the electron follows by ω(x), at a fixed
rotation of the points. The mean over rotations and walkers is exact for any ψ, as V is hermitian
and rotations do not depend on walkers. ψ at the points enters with its gradient by the moved
electron, and with no other derivative. The sum over all A is zero.
"""

from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.contracts import Nuclei, Params, Psi
from vmcjob.vmc.hamiltonian import ECP_LOCAL, Multiplicative
from vmcjob.vmc.observing import Sample
from vmcjob.vmc.pseudopotential import LocalPotential, NonLocalPotential, Pair
from vmcjob.vmc.warp import warp

NONE: Final = 0.0


def bare_charges(sample: Sample) -> Float[Array, " nuc"]:
    """Charges of the nuclei without a core, and zeros for the others."""
    local = _local_potential(sample)
    charges = sample.nuclei.charges
    if local is None:
        return charges
    return charges * np.array([one.core is None for one in local.species])


def fixed_slopes_of_local(sample: Sample) -> Float[Array, "nuc 3"] | float:
    """The derivative of the cores' local part by the nuclei, with electrons at their places."""
    local = _local_potential(sample)
    if local is None:
        return NONE

    def potential(positions: Array) -> Array:
        return local(sample.r, Nuclei(positions, sample.nuclei.charges))

    return jax.grad(potential)(sample.nuclei.positions)


def slopes_of_nonlocal(sample: Sample) -> Float[Array, "nuc 3 form"] | float:
    """The derivative of the cores' non-local part at one walker, hartree/bohr; zero without one.

    The first form is [D, V]ψ/ψ. The second form has no warp, and the commutator [V, Q]ψ/ψ with the
    function Q of nuclei without a core (`forces.forces_by_gradient`).
    """
    terms = sample.hamiltonian.terms.values()
    found = [term for term in terms if isinstance(term, NonLocalPotential)]
    if not found:
        return NONE
    (term,) = found
    is_bare = np.array([one.core is None for one in term.species])

    def of_pair(pair: Pair, params: Params, nuclei: Nuclei) -> Float[Array, "nuc 3 form"]:
        def log_psi(place: Array) -> tuple[Array, Psi]:
            there = sample.psi(params, pair.moved(place), nuclei)
            return there.log_abs, there

        gradient = jax.value_and_grad(log_psi, has_aux=True)
        (_, there), slopes = jax.vmap(gradient)(pair.points)
        ratios = pair.ratios(there)
        acting = ratios * term.kernel(pair, pair.apart)
        by_place = jax.jacfwd(lambda apart: term.kernel(pair, apart))(pair.apart)
        outward = jnp.sum(pair.directions * slopes, axis=-1)
        # The change by a move of the electron alone: K and the distance of the points change.
        alone = ratios @ by_place + (acting @ outward) * pair.apart / pair.distance
        is_own = jnp.arange(len(nuclei.charges)) == pair.nucleus
        here = warp(pair.walker[pair.electron][None], nuclei.positions).weight[0]
        away = is_own - warp(pair.points, nuclei.positions).weight
        by_warp = (here - is_own)[:, None] * alone
        by_warp += jnp.einsum("q,qa,qx->ax", acting, away, slopes)
        unwarped = is_own[:, None] * (acting @ slopes - alone)
        change = _pull(pair.points, nuclei) - _pull(pair.walker[pair.electron], nuclei)
        unwarped += is_bare[:, None] * jnp.tensordot(acting, change, 1)
        return jnp.stack([by_warp, unwarped], axis=-1)

    given = sample.psi, sample.params, sample.r, sample.nuclei, sample.key
    return term.sum_over_pairs(of_pair, *given)


def _pull(place: Float[Array, "*some 3"], nuclei: Nuclei) -> Float[Array, "*some nuc 3"]:
    """Z_A (r − R_A)/|r − R_A|."""
    apart = place[..., None, :] - nuclei.positions
    distances = jnp.linalg.norm(apart, axis=-1, keepdims=True)
    return nuclei.charges[:, None] * apart / distances


def _local_potential(sample: Sample) -> LocalPotential | None:
    """The cores' local part; None without cores."""
    term = sample.hamiltonian.terms.get(ECP_LOCAL)
    potential = term.potential if isinstance(term, Multiplicative) else None
    return potential if isinstance(potential, LocalPotential) else None
