"""Adam and LAMB against their papers, step by step in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.updates import Updating
from tests.wavefunctions import Clamped
from vmcjob.vmc import devices
from vmcjob.vmc.ansatz import WaveFunction
from vmcjob.vmc.ansatz.ferminet import FermiNet
from vmcjob.vmc.energy import Clipping
from vmcjob.vmc.first_order import FirstOrder, adam, lamb
from vmcjob.vmc.schedule import Decay
from vmcjob.vmc.system import System
from vmcjob.vmc.update import UpdateRule

HELIUM = System(((0.0, 0.0, 0.0),), (2,), 1, 1)
NET = Clamped(WaveFunction(FermiNet(HELIUM, 1, True, 1, 4, 4)), HELIUM)
LOG_PSI = NET.log_psi
SCORES = jax.jit(jax.vmap(jax.grad(LOG_PSI), (None, 0)))


def energy_gradient(params: Any, r: np.ndarray, e_loc: np.ndarray) -> list[np.ndarray]:
    """2 ⟨(E − ⟨E⟩) ∂ log|ψ|/∂θ⟩, array by array, from every walker's own derivative."""
    scores = SCORES(params, r)
    deviations = e_loc - e_loc.mean()
    return [
        2.0 * np.tensordot(deviations, np.asarray(score), axes=1) / len(r)
        for score in jax.tree.leaves(scores)
    ]


def scaled(arrays: list[np.ndarray], directions: list[np.ndarray]) -> list[np.ndarray]:
    """LAMB: every direction as long as its array; as it is where one of them vanishes."""
    return [
        direction * (np.linalg.norm(array) / np.linalg.norm(direction) if array.any() else 1.0)
        for array, direction in zip(arrays, directions, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("make", "epsilon"), [(adam, 1e-8), (lamb, 1e-6)])
def test_three_steps_equal_the_formulas(make: Any, epsilon: float) -> None:
    """Running means without bias, and a gradient that is neither half nor uncentred.

    The steps do not see the gradient's scale, so its norm is compared too.
    """
    rng = np.random.default_rng(0)
    r, e_loc = rng.standard_normal((3, 16, 2, 3)), rng.standard_normal((3, 16))
    params = jax.jit(NET.init)(jax.random.key(0), jnp.asarray(r[0, 0]))
    rule = UpdateRule(Decay(0.1, 2.0), Clipping(1e9, "mean"))
    optimizer = Updating(LOG_PSI, FirstOrder(LOG_PSI, make(0.8, 0.9)), rule)
    mapped = devices.pmap(lambda given, step: optimizer.update(*given, step=step))
    state = devices.replicate((params, optimizer.init(params)))
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    mean, square = ([np.zeros_like(array) for array in arrays] for _ in range(2))
    for step in range(3):
        given = (*state, devices.shard(r[step]), devices.shard(e_loc[step]))
        *state, info, _, _ = mapped(given, jnp.asarray(step))
        now = jax.tree.unflatten(jax.tree.structure(params), arrays)
        gradient = energy_gradient(now, r[step], e_loc[step])
        mean = [0.8 * m + 0.2 * g for m, g in zip(mean, gradient, strict=True)]
        square = [0.9 * s + 0.1 * g**2 for s, g in zip(square, gradient, strict=True)]
        directions = [
            (m / (1 - 0.8 ** (step + 1))) / (np.sqrt(s / (1 - 0.9 ** (step + 1))) + epsilon)
            for m, s in zip(mean, square, strict=True)
        ]
        if make is lamb:
            directions = scaled(arrays, directions)
        eta = 0.1 / (1 + step / 2.0)
        arrays = [array - eta * d for array, d in zip(arrays, directions, strict=True)]
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient))
        np.testing.assert_allclose(devices.unreplicate(info).grad_norm, norm, rtol=1e-9)
    found = ravel_pytree(devices.unreplicate(state[0]))[0]
    np.testing.assert_allclose(found, np.concatenate([a.ravel() for a in arrays]), atol=1e-8)
