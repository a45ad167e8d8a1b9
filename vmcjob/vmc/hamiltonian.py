"""The Hamiltonian of one walker as a sum of terms, made from the system."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.vmc.contracts import Nuclei, Params, SignedWaveFunction
from vmcjob.vmc.pseudopotential import LocalPotential, NonLocalPotential
from vmcjob.vmc.system import System, bare_nuclei
from vmcjob.vmc.wavefunction import log_modulus


@runtime_checkable
class Term(Protocol):
    """A term of the Hamiltonian: its contribution to the local energy of one walker."""

    def __call__(
        self,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
        key: Array,
    ) -> Float[Array, ""]:
        """(Tψ)(r) / ψ(r) in hartree; `key` is unique for walker, term and step."""
        ...


@runtime_checkable
class DifferentialTerm(Term, Protocol):
    """A term that takes derivatives of log|ψ|, and can also return them for other uses."""

    def with_jet(
        self,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
    ) -> tuple[Float[Array, ""], fwdlap.Jet]:
        """The energy of `Term`, and log|ψ| with its gradient and Laplacian."""
        ...


class LocalEnergy(NamedTuple):
    """The local energy of one walker and its parts."""

    total: Float[Array, ""]  # hartree
    terms: Mapping[str, Float[Array, ""]]  # hartree; by name of the term
    jet: fwdlap.Jet | None  # log|ψ|, ∇log|ψ| and ∇²log|ψ|, if a term took derivatives


@dataclass(frozen=True)
class Hamiltonian:
    """A sum of terms by name."""

    terms: Mapping[str, Term]

    def local_energy(
        self,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
        key: Array,
    ) -> LocalEnergy:
        """(Hψ)(r) / ψ(r) of one walker, and its parts.

        Each term has its own key, folded from the walker's by the name of the term.
        """
        energies, jet = {}, None
        for name, term in self.terms.items():
            if isinstance(term, DifferentialTerm):
                energies[name], jet = term.with_jet(psi, params, r, nuclei)
            else:
                own = jax.random.fold_in(key, zlib.crc32(name.encode()))
                energies[name] = term(psi, params, r, nuclei, own)
        return LocalEnergy(sum(energies.values(), jnp.zeros((), r.dtype)), energies, jet)


@dataclass(frozen=True)
class Kinetic:
    """Kinetic energy (a `DifferentialTerm`).

    With L = log|ψ|, which neither underflows nor overflows,

        T_loc = −½ Σ_i ( ∇_i² L + |∇_i L|² ),

    and one forward pass yields both terms (arXiv:2307.08214).

    Not finite at nodes and coalescence points. This term neither clips nor replaces numbers;
    `energy.Clipping` clips for gradients only.
    """

    def __call__(
        self,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
        key: Array,
    ) -> Float[Array, ""]:
        """See `Term`."""
        del key
        return self.with_jet(psi, params, r, nuclei)[0]

    def with_jet(
        self,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
    ) -> tuple[Float[Array, ""], fwdlap.Jet]:
        """See `DifferentialTerm`."""
        jet = fwdlap.laplacian(partial(log_modulus(psi, nuclei), params))(r)
        return -0.5 * (jet.laplacian + jnp.sum(jet.gradient**2)), jet


@dataclass(frozen=True)
class Multiplicative:
    """A term V(r) that multiplies ψ (a `Term`): a function of positions alone."""

    potential: Callable[[Float[Array, "elec 3"], Nuclei], Float[Array, ""]]
    """``(r, nuclei) -> V`` of one walker, in hartree."""

    def __call__(
        self,
        psi: SignedWaveFunction,
        params: Params,
        r: Float[Array, "elec 3"],
        nuclei: Nuclei,
        key: Array,
    ) -> Float[Array, ""]:
        """See `Term`."""
        del psi, params, key
        return self.potential(r, nuclei)


def electron_electron(r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, ""]:
    """Σ_{i<j} 1/|r_i − r_j|; infinite if two electrons coincide."""
    del nuclei
    return _repulsion(r, jnp.ones(r.shape[0], r.dtype))


def electron_nucleus(r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, ""]:
    """−Σ_{iI} Z_I/|r_i − R_I|; infinite if an electron is at a nucleus."""
    distances = jnp.linalg.norm(r[:, None] - nuclei.positions, axis=-1)
    return -jnp.sum(nuclei.charges / distances)


@dataclass(frozen=True)
class BareAttraction:
    """`electron_nucleus` of some of the nuclei: those without a core."""

    numbers: tuple[int, ...]  # of these nuclei

    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, ""]:
        """V in hartree."""
        bare = np.array(self.numbers)
        return electron_nucleus(r, Nuclei(nuclei.positions[bare], nuclei.charges[bare]))


def nucleus_nucleus(r: Float[Array, "elec 3"], nuclei: Nuclei) -> Float[Array, ""]:
    """Σ_{I<J} Z_I Z_J/|R_I − R_J|, the same for all walkers."""
    del r
    return _repulsion(nuclei.positions, nuclei.charges)


def _repulsion(x: Float[Array, "body 3"], q: Float[Array, " body"]) -> Float[Array, ""]:
    """Σ_{i<j} q_i q_j / |x_i − x_j|."""
    i, j = np.triu_indices(x.shape[0], k=1)
    return jnp.sum(q[i] * q[j] / jnp.linalg.norm(x[i] - x[j], axis=-1))


KINETIC, V_EE, V_EN, V_NN = "kinetic", "v_ee", "v_en", "v_nn"
ECP_LOCAL, ECP_NONLOCAL = "ecp_local", "ecp_nonlocal"


def make_hamiltonian(system: System, n_points: int = 12) -> Hamiltonian:
    """The non-relativistic Hamiltonian of a system: Coulomb interactions, and cores as potentials.

    Args:
        n_points: of the quadrature of non-local potentials; see `quadrature`.
    """
    if not system.has_cores:
        return molecular_hamiltonian()
    species = system.species
    terms: dict[str, Term] = {KINETIC: Kinetic(), V_EE: Multiplicative(electron_electron)}
    if bare := bare_nuclei(system):
        terms[V_EN] = Multiplicative(BareAttraction(bare))
    terms[ECP_LOCAL] = Multiplicative(LocalPotential(species))
    if any(one.core.channels for one in species if one.core):
        terms[ECP_NONLOCAL] = NonLocalPotential(species, n_points)
    terms[V_NN] = Multiplicative(nucleus_nucleus)
    return Hamiltonian(terms)


def molecular_hamiltonian() -> Hamiltonian:
    """Non-relativistic Hamiltonian of electrons and clamped nuclei, with Coulomb interactions."""
    terms: dict[str, Term] = {
        KINETIC: Kinetic(),
        V_EE: Multiplicative(electron_electron),
        V_EN: Multiplicative(electron_nucleus),
        V_NN: Multiplicative(nucleus_nucleus),
    }
    return Hamiltonian(terms)
