"""Wave functions and Hamiltonians of tests in the forms that the project asks for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from tests.updates import Updating
from vmcjob.vmc.ansatz import WaveFunction, make_orbitals, make_psi
from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.contracts import LogPsi, Nuclei, Params, Psi, SignedWaveFunction
from vmcjob.vmc.hamiltonian import Hamiltonian, molecular_hamiltonian
from vmcjob.vmc.loop import Vmc
from vmcjob.vmc.system import System, nuclei_of

LocalEnergy = Callable[[Params, Array], Array]


@dataclass(frozen=True, eq=False)
class Clamped:
    """A wave function in flax whose nuclei stay where a system has them."""

    net: nn.Module
    system: System

    def init(self, key: Array, r: Array) -> Params:
        """Its first parameters."""
        return self.net.init(key, r, nuclei_of(self.system))

    def psi(self, params: Params, r: Array) -> Psi:
        """ψ of one walker."""
        return make_psi(self.net)(params, r, nuclei_of(self.system))

    def log_psi(self, params: Params, r: Array) -> Array:
        """log|ψ| of one walker."""
        return self.psi(params, r).log_abs

    def orbitals(self, params: Params, r: Array) -> Stacks:
        """The matrices of orbitals of one walker."""
        assert isinstance(self.net, WaveFunction)
        return make_orbitals(self.net)(params, r, nuclei_of(self.system))


def unsigned(log_psi: LogPsi) -> SignedWaveFunction:
    """A wave function of which only the modulus is known, and counts."""

    def psi(params: Params, r: Array, nuclei: Nuclei) -> Psi:
        del nuclei
        log_abs = log_psi(params, r)
        return Psi(jnp.ones_like(log_abs), log_abs)

    return psi


def make_local_energy(log_psi: LogPsi, system: System) -> LocalEnergy:
    """``(params, r) -> E_loc`` of one walker of a molecule."""

    @jax.jit
    def local_energy(params: Params, r: Array) -> Array:
        hamiltonian, key = molecular_hamiltonian(), jax.random.key(0)
        return hamiltonian.local_energy(unsigned(log_psi), params, r, nuclei_of(system), key).total

    return local_energy


def make_vmc(log_psi: LogPsi, local_energy: LocalEnergy, updating: Updating, **options: Any) -> Vmc:
    """A calculation whose local energies are those given."""

    def term(
        psi: SignedWaveFunction, params: Params, r: Array, nuclei: Nuclei, key: Array
    ) -> Array:
        del psi, nuclei, key
        return local_energy(params, r)

    return Vmc(
        psi=unsigned(log_psi),
        hamiltonian=Hamiltonian({"all": term}),
        nuclei=Nuclei(jnp.zeros((0, 3)), jnp.zeros(0)),
        make_optimizer=lambda log_psi, local_energies: updating.optimizer,
        rule=updating.rule,
        **options,
    )
