"""Forces on nuclei: estimators of one walker, by the space warp and by the gradient alone.

L is log|ψ|, E_L the local energy and E its mean. When nucleus A moves along an axis, each electron
follows by its weight ω = ω_A(r_i). D = ∂_R + Σ_i ω ∂_i moves nucleus and electrons. The force is

    F = −⟨ D V + Σ_i ( ∇ω·∇∂ψ/ψ + ½ ∇²ω ∂L ) ⟩ − 2 ⟨ (E_L − E) ( D L + ½ Σ_i ∂ω ) ⟩

∂ is the derivative along the axis. The first mean is that of the derivative of the Hamiltonian in
the moving coordinates. It has second derivatives of ψ, and no third ones as D E_L has (C. Filippi
and C. J. Umrigar, Phys. Rev. B 61, R16291 (2000); S. Sorella and L. Capriotti, J. Chem. Phys. 133,
234111 (2010)). The second mean is Pulay's: ψ follows the nucleus at fixed parameters. The
response of the parameters takes variance away, and leaves the mean where the energy is at a minimum
(`response`).

The check needs only ∇L (R. Assaraf and M. Caffarel, J. Chem. Phys. 119, 10536 (2003), eq. 73):

    F = F_nn + ⟨ Σ_i ∇_i Q·∇_i L ⟩ − 2 ⟨ (E_L − E) Q ⟩,    Q = Z_A Σ_i (r_i − R_A)/|r_i − R_A|

A nucleus with a core potential has Q = 0 there, and the check is the force of Hellmann and Feynman.
Its variance is finite for potentials that are finite at the nucleus, such as ccECP. `core_forces`
has the parts of core potentials.
"""

from functools import partial
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.contracts import Nuclei, Params, SignedWaveFunction
from vmcjob.vmc.core_forces import bare_charges, fixed_slopes_of_local, slopes_of_nonlocal
from vmcjob.vmc.hamiltonian import ECP_LOCAL, V_EE, V_EN, V_NN, Kinetic, Multiplicative
from vmcjob.vmc.observing import Changes, Sample, Walker
from vmcjob.vmc.pseudopotential import NonLocalPotential
from vmcjob.vmc.response import added
from vmcjob.vmc.warp import Warp, warp
from vmcjob.vmc.wavefunction import log_modulus

RATIOS: Final = (1.0, 2.0)
"""Widths of the regularised zones, in units of the smaller one."""
ZONE: Final = 0.2
"""The smaller width, in units of 1/√(2 Σ Z²), about the usual 1/|∇L| of all electrons. A larger one
leaves more bias: by 0.4, walkers far from nodes are in the wider zone."""


class Measured(NamedTuple):
    """The parts of forces at one walker, by nucleus and axis; forces are made of their means."""

    local: Float[Array, "nuc 3 form"]  # hartree/bohr; by the warp, by the gradient
    score: Float[Array, "nuc 3 score"]  # 1/bohr; by the warp in each zone, by the gradient
    product: Float[Array, "nuc 3 score"]  # with the local energy, hartree/bohr
    energy: Float[Array, ""]  # hartree
    nuclei: Float[Array, "nuc 3"]  # bohr
    controls: Float[Array, "nuc 3 field"]  # of mean zero


def measure(sample: Sample) -> Measured:
    """The parts of the forces at one walker.

    Costs about as much as 3N gradients of L beside the local energy, N the number of electrons, and
    with core potentials a gradient for each point of the quadrature.
    """
    moved = warp(sample.r, sample.nuclei.positions)
    slopes = slopes_of_log_psi(sample)
    by_warp = local_force(sample, moved, slopes)
    by_gradient, q = forces_by_gradient(sample, slopes.electrons)
    factors = away_from_nodes(sample.nuclei.charges, slopes.electrons)
    change = pulay(moved, slopes.electrons, slopes.nuclei)
    if sample.response is not None:
        log_psi = log_modulus(sample.psi, sample.nuclei)
        change += added(log_psi, sample.params, sample.r, sample.response).reshape(change.shape)
    scores = change[..., None] * factors
    score = jnp.concatenate([scores, q[..., None]], axis=-1)
    energy = sample.local.total
    local = jnp.stack([by_warp, by_gradient], axis=-1) - slopes_of_nonlocal(sample)
    nuclei = sample.nuclei.positions
    zero = controls(sample.r, nuclei, slopes.electrons)
    return Measured(local, score, energy * score, energy, nuclei, zero)


class Slopes(NamedTuple):
    """Derivatives of L = log|ψ| at one walker."""

    electrons: Float[Array, "elec 3"]
    nuclei: Float[Array, "nuc 3"]
    second: Float[Array, "elec 3 3"]  # ∂∂L of each electron by itself


def along_warp(
    moved: Warp, electrons: Float[Array, "elec 3"], nuclei: Float[Array, "nuc 3"]
) -> Float[Array, "nuc 3"]:
    """D of a function with these derivatives by electrons and nuclei."""
    return nuclei + jnp.einsum("ia,ix->ax", moved.weight, electrons)


def slopes_of_potential(sample: Sample, moved: Warp) -> Float[Array, "nuc 3"]:
    """D V, V the sum of all terms that multiply ψ.

    Raises ValueError, while a step is compiled, for a term that is neither Coulomb's nor a core's:
    the form by the gradient alone holds for no other potential.
    """
    found: list[Multiplicative] = []
    for name, term in sample.hamiltonian.terms.items():
        if name in (V_EE, V_EN, V_NN, ECP_LOCAL) and isinstance(term, Multiplicative):
            found.append(term)
        elif not isinstance(term, (Kinetic, NonLocalPotential)):
            raise ValueError(f"{name}: only potentials of nuclei and cores have forces")

    def potential(r: Array, positions: Array) -> Array:
        nuclei = Nuclei(positions, sample.nuclei.charges)
        return sum((one.potential(r, nuclei) for one in found), jnp.zeros((), r.dtype))

    return along_warp(moved, *jax.grad(potential, (0, 1))(sample.r, sample.nuclei.positions))


def slopes_of_log_psi(sample: Sample) -> Slopes:
    """First derivatives of L by electrons and nuclei, and second ones of each electron."""
    log_psi = partial(_log_psi, sample.psi, sample.params, sample.nuclei.charges)
    r, positions = sample.r, sample.nuclei.positions
    n = r.shape[0]
    electrons, nuclei = jax.grad(log_psi, (0, 1))(r, positions)

    def row(electron: Array, direction: Array) -> Array:
        """The derivative of an electron's gradient when this electron moves along a direction."""
        moves = jnp.zeros_like(r).at[electron].set(direction)
        _, change = jax.jvp(lambda r: jax.grad(log_psi)(r, positions), (r,), (moves,))
        return change[electron]

    rows = jax.vmap(jax.vmap(row, (None, 0)), (0, None))
    return Slopes(electrons, nuclei, rows(jnp.arange(n), jnp.eye(3, dtype=r.dtype)))


def local_force(sample: Sample, moved: Warp, slopes: Slopes) -> Float[Array, "nuc 3"]:
    """The first mean of the force by the warp, at one walker; hartree/bohr."""
    own = slopes.electrons
    curvature = slopes.second + own[:, :, None] * own[:, None, :]  # ∂∂ψ/ψ of each electron
    kinetic = jnp.einsum("iax,ixy->ay", moved.gradient, curvature)
    kinetic += 0.5 * jnp.einsum("ia,ix->ax", moved.laplacian, own)
    return -slopes_of_potential(sample, moved) - kinetic


def pulay(
    moved: Warp, electrons: Float[Array, "elec 3"], nuclei: Float[Array, "nuc 3"]
) -> Float[Array, "nuc 3"]:
    """D L + ½ Σ_i ∂ω of the slopes of L, the change of log|ψ| and of the volume; 1/bohr."""
    return along_warp(moved, electrons, nuclei) + 0.5 * jnp.sum(moved.gradient, axis=0)


def changes(walker: Walker) -> Changes:
    """Pulay's changes at fixed parameters, by nucleus and axis; the axis runs faster."""
    psi, params, r, nuclei = walker
    slopes = jax.grad(partial(_log_psi, psi, params, nuclei.charges), (0, 1))(r, nuclei.positions)
    return pulay(warp(r, nuclei.positions), *slopes).ravel()


def _log_psi(
    psi: SignedWaveFunction, params: Params, charges: Array, r: Array, positions: Array
) -> Array:
    return psi(params, r, Nuclei(positions, charges)).log_abs


def away_from_nodes(
    charges: Float[Array, " nuc"], gradient: Float[Array, "elec 3"]
) -> Float[Array, " zone"]:
    """Factors from 0 at a node of ψ to 1 outside of zones of the widths ε in `RATIOS`.

    E_L and D L are as 1/d at the distance d = 1/|∇L| of a node, so their product has no variance.
    With x = d/ε < 1, the factor 7x⁶ − 15x⁴ + 9x² gives it one, and a bias ∝ ε³ to the mean (S.
    Pathak and L. K. Wagner, AIP Adv. 10, 085213 (2020)).
    """
    width = ZONE / jnp.sqrt(2.0 * jnp.sum(charges**2))
    square = 1.0 / (jnp.sum(gradient**2) * (width * jnp.array(RATIOS, gradient.dtype)) ** 2)
    x = jnp.minimum(square, 1.0)  # squared
    return x * (9.0 + x * (7.0 * x - 15.0))


def forces_by_gradient(
    sample: Sample, gradient: Float[Array, "elec 3"]
) -> tuple[Float[Array, "nuc 3"], Float[Array, "nuc 3"]]:
    """F_nn + Σ_i ∇_i Q·∇_i L in hartree/bohr, and Q in units of 1/bohr, at one walker.

    Nuclei with a core have Q = 0 and the derivative of the local part at fixed electrons.
    """
    nuclei = sample.nuclei
    x = sample.r[:, None] - nuclei.positions
    d = jnp.linalg.norm(x, axis=-1, keepdims=True)
    hat = x / d
    slope = jnp.sum(hat * gradient[:, None], axis=-1, keepdims=True)
    across = (gradient[:, None] - slope * hat) / d
    charges = bare_charges(sample)[:, None]
    of_nuclei = _between_nuclei(nuclei) - fixed_slopes_of_local(sample)
    return of_nuclei + charges * jnp.sum(across, axis=0), charges * jnp.sum(hat, axis=0)


def _between_nuclei(nuclei: Nuclei) -> Float[Array, "nuc 3"]:
    """Z_A Σ_B Z_B (R_A − R_B) / |R_A − R_B|³, the force of the other nuclei."""
    apart = nuclei.positions[:, None] - nuclei.positions
    n = len(nuclei.charges)
    distance = jnp.sqrt(jnp.sum(apart**2, axis=-1) + jnp.eye(n, dtype=apart.dtype))
    charges = nuclei.charges[:, None] * nuclei.charges
    return jnp.sum((charges / distance**3)[..., None] * apart, axis=1)


def fields(r: Float[Array, "elec 3"], nuclei: Float[Array, "nuc 3"]) -> Float[Array, "nuc 3 field"]:
    """Functions φ, smooth at nuclei, whose `controls` vary as the force does.

    With x = r − R_A, n = x/|x| and weights ω of the warp, sums over electrons of

        (1 − exp(−x²)) n,  (1 − ω) n,  ω Σ_{B≠A} n_B,  ω (Σ_B ω_B n_B − n),  ω x,  exp(−|x|) x,

    and the sum over pairs of (ω_i − ω_j) (r_i − r_j)/|r_i − r_j|.
    """
    x = r[:, None] - nuclei
    square = jnp.sum(x**2, axis=-1, keepdims=True)
    d = jnp.sqrt(square)
    n = x / d
    share = square**-2
    weight = share / jnp.sum(share, axis=1, keepdims=True)
    others = jnp.sum(n, axis=1, keepdims=True) - n
    mean = jnp.sum(weight * n, axis=1, keepdims=True)
    single = [(1.0 - jnp.exp(-square)) * n, (1.0 - weight) * n, weight * others]
    single += [weight * (mean - n), weight * x, jnp.exp(-d) * x]
    found = [jnp.sum(one, axis=0) for one in single]
    i, j = np.triu_indices(r.shape[0], k=1)
    if len(i):
        apart = r[i] - r[j]
        direction = apart / jnp.sqrt(jnp.sum(apart**2, axis=-1, keepdims=True))
        found.append(jnp.sum((weight[i] - weight[j]) * direction[:, None], axis=0))
    else:
        found.append(jnp.zeros_like(nuclei))
    return jnp.stack(found, axis=-1)


def controls(
    r: Float[Array, "elec 3"], nuclei: Float[Array, "nuc 3"], gradient: Float[Array, "elec 3"]
) -> Float[Array, "nuc 3 field"]:
    """½ ∇²φ + ∇φ·∇L of all `fields`, whose mean over ψ² is zero.

    With φ = D L + ½ Σ ∂ω, this is the part that varies in the force on an exact ψ.
    """
    _, jacobian, laplacian = fwdlap.derivatives(partial(fields, nuclei=nuclei))(r)
    return 0.5 * laplacian + jnp.tensordot(gradient.ravel(), jacobian, 1)
