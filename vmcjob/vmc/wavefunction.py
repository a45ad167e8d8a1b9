"""Functions of a signed wave function: its logarithm at fixed nuclei, and ratios."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.contracts import LogPsi, Nuclei, Params, SignedWaveFunction


def log_modulus(psi: SignedWaveFunction, nuclei: Nuclei) -> LogPsi:
    """``(params, r) -> log|ψ|`` of one walker, for given nuclei."""

    def log_psi(params: Params, r: Float[Array, "elec 3"]) -> Float[Array, ""]:
        return psi(params, r, nuclei).log_abs

    return log_psi


def ratio(
    psi: SignedWaveFunction,
    params: Params,
    new: Float[Array, "elec 3"],
    old: Float[Array, "elec 3"],
    nuclei: Nuclei,
) -> Float[Array, ""]:
    """ψ(new) / ψ(old) with its sign; infinite or NaN if ψ(old) is zero."""
    above, below = psi(params, new, nuclei), psi(params, old, nuclei)
    return above.phase * below.phase * jnp.exp(above.log_abs - below.log_abs)
