"""Wave functions in flax: orbitals that depend on all electrons, determinants, Jastrow factors."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.ansatz.determinants import Stacks, sum_of_determinants, sum_of_two
from vmcjob.vmc.contracts import Nuclei, Params, Psi, SignedWaveFunction


class WaveFunction(nn.Module):
    """ψ of one walker: exp(J) D, D = Σ_k det Φ_k, or exp(J) [D(r↑; r↓) + D(r↓; r↑)].

    ψ is antisymmetric if an exchange of two like spins exchanges two rows of each matrix of
    `orbitals` and does not change `jastrow`. With `exchanged` ψ has parts of even total spin S
    only, since ψ(r↓; r↑) = (−1)^S ψ(r↑; r↓). An exchange of all spins must not change `jastrow`.
    """

    orbitals: nn.Module  # (one walker, nuclei) -> matrices of orbitals; rows are electrons
    jastrow: nn.Module | None = None  # (one walker, nuclei) -> log of a positive factor
    exchanged: bool = False  # whether D(r↓; r↑) is added; there are as many electrons of each spin

    def __call__(self, r: Float[Array, "elec 3"], nuclei: Nuclei) -> Psi:
        """ψ at the electron positions, in bohr."""
        psi = sum_of_determinants(self.orbitals(r, nuclei))
        if self.exchanged:
            n_up = r.shape[0] // 2
            swapped = jnp.concatenate([r[n_up:], r[:n_up]])
            psi = sum_of_two(psi, sum_of_determinants(self.orbitals(swapped, nuclei)))
        if self.jastrow is None:
            return psi
        return psi._replace(log_abs=psi.log_abs + self.jastrow(r, nuclei))


def make_psi(ansatz: nn.Module) -> SignedWaveFunction:
    """A flax module as a function of parameters, one walker and nuclei."""

    def psi(params: Params, r: Array, nuclei: Nuclei) -> Psi:
        return ansatz.apply(params, r, nuclei)  # pyright: ignore[reportReturnType] -- no mutable variables

    return psi


def make_orbitals(ansatz: WaveFunction) -> Callable[[Params, Array, Nuclei], Stacks]:
    """``(params, r, nuclei) -> matrices of orbitals`` of one walker."""

    def orbitals(params: Params, r: Array, nuclei: Nuclei) -> Stacks:
        return ansatz.apply(  # pyright: ignore[reportReturnType]
            params, r, nuclei, method=lambda module, r, nuclei: module.orbitals(r, nuclei)
        )

    return orbitals
