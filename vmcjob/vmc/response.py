"""The response of the parameters: how θ changes with a nucleus, so that ψ follows the nucleus.

At fixed parameters, log|ψ| of a network changes with a nucleus also where electrons are at distant
nuclei, since they take their coordinates from all nuclei. Let X be this change at a walker, and O
the scores ∂ log|ψ| / ∂θ. If the parameters change by θ′, too, the change is

    X + O·θ′

At the minimum of the energy ⟨(E_L − E) O⟩ = 0, and any θ′ leaves the mean of Pulay's part
−2 ⟨(E_L − E) (X + O·θ′)⟩ as it is. The response is the θ′ with the smallest variance of X + O·θ′.
Each batch of N walkers improves θ′ by a step of SPRING (arXiv:2401.10190), as an update of θ is
made there from local energies. With the centred scores Ô as rows and the centred changes x, both
divided by √N,

    θ′ ← μ θ′ − Ôᵀ (Ô Ôᵀ + λ)⁻¹ (x + μ Ô θ′)

Later walkers are measured with the last θ′, so that no walker fits its own change.
"""

from collections.abc import Callable
from typing import Final

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from vmcjob.vmc import devices
from vmcjob.vmc.centred_scores import HIGHEST, centred_scores
from vmcjob.vmc.contracts import LogPsi, Params
from vmcjob.vmc.gram import apply_inverse
from vmcjob.vmc.scores import map_walkers

DAMPING: Final = 1e-2
"""λ. For water with 512 walkers, 1e-3 to 1e-1 leave the same variance within a tenth."""
MEMORY: Final = 0.99
"""μ: about a hundred batches count."""

MAX_WALKERS: Final = 1024
"""Of a batch, as many walkers at most. So the fit needs no more memory where walkers are many."""

Response = Float[Array, "change param"]
"""θ′ for each change, with flat parameters."""
ChangesOf = Callable[[Float[Array, "elec 3"]], Float[Array, " change"]]
"""From a walker to the changes X of its log|ψ| at fixed parameters."""


def improve(
    log_psi: LogPsi,
    params: Params,
    r: Float[Array, "walker elec 3"],
    changes_of: ChangesOf,
    response: Response,
    chunk_divisor: int = 1,
) -> Response:
    """The response after one more batch of walkers; inside pmap.

    Where the result is not finite, the response stays.
    """
    r = _some(r)
    scale = 1.0 / jnp.sqrt(devices.total(r.shape[0])).astype(r.dtype)
    scores = centred_scores(log_psi, params, r, scale, chunk_divisor)
    changes = devices.concatenate(map_walkers(changes_of, r, chunk_divisor=chunk_divisor))
    changes = scale * (changes - jnp.mean(changes, axis=0))
    kept = jax.lax.map(scores.split, MEMORY * response)
    left = changes.T + jax.lax.map(scores.apply, kept)
    solved = apply_inverse(scores, left, DAMPING)
    found = jax.lax.map(scores.join, jax.tree.map(jnp.subtract, kept, solved))
    return jnp.where(devices.all_finite(found), found, response)


def _some(r: Float[Array, "walker elec 3"]) -> Float[Array, "some elec 3"]:
    """This device's part of the first `MAX_WALKERS` walkers, or some less: all parts are equal."""
    n_devices = devices.total(1)
    if len(r) * n_devices <= MAX_WALKERS:
        return r
    own = devices.own_walkers(MAX_WALKERS // n_devices)
    return devices.concatenate(r)[own]


def added(
    log_psi: LogPsi, params: Params, r: Float[Array, "elec 3"], response: Response
) -> Float[Array, " change"]:
    """O·θ′ of one walker."""
    flat, unravel = ravel_pytree(params)
    score = jax.grad(lambda theta: log_psi(unravel(theta), r))(flat)
    return jnp.matmul(response, score, precision=HIGHEST)
