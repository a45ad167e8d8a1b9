"""No wave function has a pole, or grows far away, whatever its parameters."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ansatze import ANSATZE
from vmcjob.vmc.contracts import Params
from vmcjob.vmc.system import System

pytestmark = pytest.mark.usefixtures("float64")
SYSTEM = System(((0.0, 0.0, 0.0), (0.0, 0.5, 1.0)), (3, 1), 2, 2)
SIZES = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3])
POINTS, ZOOMS = 64, 8


@cache
def make(name: str) -> tuple[Any, Any]:
    """log|ψ| of a batch of walkers, and the shapes of its parameters."""
    net = ANSATZE[name](SYSTEM)
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((SYSTEM.n_electrons, 3)))
    return jax.jit(jax.vmap(net.log_psi, (None, 0))), shapes


def random_params(shapes: Params, rng: np.random.Generator, size: float) -> Params:
    """Of any sign, most of them small, some as large as `size`."""

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.asarray(size * rng.normal(size=leaf.shape) ** 3)

    return jax.tree.map(fill, shapes)


@pytest.mark.parametrize("name", list(ANSATZE))
@given(seed=st.integers(0, 2**32 - 1), size=SIZES)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_no_two_particles_meet_at_a_pole(name: str, seed: int, size: float) -> None:
    """Walkers gather in a pole: log|ψ| stood 560 above the median where −α²/(α + r) had one.

    One electron goes through another particle and beyond. Looked at ever more closely around its
    highest point there, log|ψ| has an end where it is bounded, and none at a pole.
    """
    log_psi, shapes = make(name)
    rng = np.random.default_rng(seed)
    params = random_params(shapes, rng, size)
    r = rng.normal(size=(SYSTEM.n_electrons, 3))
    i, j = rng.choice(SYSTEM.n_electrons, 2, replace=False)
    target = r[j] if rng.random() < 0.5 else np.array(SYSTEM.nuclei[rng.integers(2)])
    low, high, highest = -3.0, 3.0, []
    for _ in range(ZOOMS):
        t = np.linspace(low, high, POINTS)
        path = np.repeat(r[None], POINTS, axis=0)
        path[:, i] = target + t[:, None] * (r[i] - target)
        log_abs = np.asarray(log_psi(params, path))
        assert not np.isnan(log_abs).any()
        top, width = t[np.argmax(log_abs)], 2.0 * (high - low) / POINTS
        low, high = top - width, top + width
        highest.append(log_abs.max())
    assert highest[-1] - highest[-3] < 1e-2 * (1.0 + abs(highest[-1]))


@pytest.mark.parametrize("name", list(ANSATZE))
@given(seed=st.integers(0, 2**32 - 1), size=SIZES)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_far_away_every_wave_function_falls(name: str, seed: int, size: float) -> None:
    """An electron that leaves must be worth less the farther it is, or ψ cannot be normalized."""
    log_psi, shapes = make(name)
    rng = np.random.default_rng(seed)
    params = random_params(shapes, rng, size)
    r = np.repeat(rng.normal(size=(1, SYSTEM.n_electrons, 3)), 4, axis=0)
    away = rng.normal(size=3)
    r[:, rng.integers(SYSTEM.n_electrons)] += (
        np.array([1e4, 2e4, 4e4, 8e4])[:, None] * away / np.linalg.norm(away)
    )
    log_abs = np.asarray(log_psi(params, r))
    assert not np.isnan(log_abs).any()
    # In between, a row of subnormal numbers has no digits; beyond float64 ψ is zero, −∞ here.
    assert log_abs[-1] < log_abs[0] or log_abs[0] == -np.inf
