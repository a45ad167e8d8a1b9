"""Wave functions in flax: orbitals that depend on all electrons, their determinants, a Jastrow."""

from collections.abc import Callable

import flax.linen as nn
from jax import Array

from vmcjob.vmc.ansatz.determinants import Stacks, log_abs_sum_det
from vmcjob.vmc.contracts import LogPsi, Params


class WaveFunction(nn.Module):
    """log|ψ| of one walker: J + log |Σ_k det Φ_k|.

    Antisymmetric if exchanging two like spins exchanges two rows of every matrix of `orbitals` and
    leaves `jastrow` as it is.
    """

    orbitals: nn.Module  # one walker -> its matrices of orbitals, rows are electrons
    jastrow: nn.Module | None = None  # one walker -> log of a positive factor

    def __call__(self, r: Array) -> Array:
        """log|ψ(r)| from the electron positions in bohr."""
        log_abs = log_abs_sum_det(self.orbitals(r))
        return log_abs if self.jastrow is None else log_abs + self.jastrow(r)


def make_log_psi(ansatz: nn.Module) -> LogPsi:
    """A flax module as the plain function of parameters and one walker that all else wants."""

    def log_psi(params: Params, r: Array) -> Array:
        return ansatz.apply(params, r)  # pyright: ignore[reportReturnType] -- no mutable variables

    return log_psi


def make_orbitals(ansatz: WaveFunction) -> Callable[[Params, Array], Stacks]:
    """``(params, r) -> the matrices of orbitals`` of one walker."""

    def orbitals(params: Params, r: Array) -> Stacks:
        return ansatz.apply(params, r, method=lambda module, r: module.orbitals(r))  # pyright: ignore[reportReturnType]

    return orbitals
