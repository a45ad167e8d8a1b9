"""Wave functions in flax, each a module that maps one walker to log|ψ|."""

import flax.linen as nn
from jax import Array

from vmcjob.vmc.contracts import LogPsi, Params


def make_log_psi(ansatz: nn.Module) -> LogPsi:
    """A flax module as the plain function of parameters and one walker that all else wants."""

    def log_psi(params: Params, r: Array) -> Array:
        return ansatz.apply(params, r)  # pyright: ignore[reportReturnType] -- no mutable variables

    return log_psi
