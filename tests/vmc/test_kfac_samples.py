"""K-FAC's Fisher matrix from random samples, beside the exact one."""

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.vmc.test_kfac import CONSTANT, NARROW, array_model, make_kfac, random_batch, updates
from vmcjob.vmc.kfac_layers import make_curvature
from vmcjob.vmc.schedule import Decay


@cache
def measured_blocks(mode: str, n_keys: int = 1) -> list[np.ndarray]:
    """The factors of a small network's blocks in one of kfac-jax's modes, a row for each key."""
    log_psi, r = NARROW.log_psi, jnp.asarray(random_batch(0).r)
    params = jax.jit(NARROW.init)(jax.random.key(0), r[0])
    curvature = make_curvature(log_psi, params, r)

    def measure(key: Array) -> list[Array]:
        empty = curvature.init(key, (params, r), None, None, False)
        state = curvature.update_curvature_matrix_estimate(
            empty, 0.0, 1.0, 0.0, len(r), key, (params, r), estimation_mode=mode
        )
        return jax.tree.leaves(state.blocks_states)

    keys = jax.random.split(jax.random.key(1), n_keys)
    return [np.asarray(leaf) for leaf in jax.jit(jax.vmap(measure))(keys)]


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("mode", ["fisher_curvature_prop", "ggn_curvature_prop", "ggn_exact"])
def test_what_is_not_offered_has_the_numbers_of_the_exact_fisher_matrix(mode: str) -> None:
    """With one output, random signs square away: as names they would be synonyms.

    Should a block be made of sums over walkers one day, they would not.
    """
    for found, exact in zip(measured_blocks(mode), measured_blocks("fisher_exact"), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_samples_give_the_fisher_matrix_on_average() -> None:
    """Within five errors of the mean of 400 keys, each of which gives something else.

    Samples of another variance than that of the distribution, or one for all walkers, would show:
    of the latter, the squares of 400 normal numbers have a mean error of 7 %, here it is 2 %.
    """
    n_keys, n_seen = 400, 0
    sampled, exact = measured_blocks("fisher_gradients", n_keys), measured_blocks("fisher_exact")
    for found, expected in zip(sampled, exact, strict=True):
        error = found.std(axis=0) / np.sqrt(n_keys)
        assert np.all(np.abs(found.mean(axis=0) - expected[0]) <= 5.0 * error + 1e-12)
        n_seen += np.any(error > 1e-12)
    assert n_seen > 5


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_samples_follow_from_seed_stream_and_step() -> None:
    """Repeated, they are the same; another seed, another retry's stream or step has others."""
    log_psi, params = array_model()  # of which the scores do not depend on the parameters
    options: dict[str, Any] = {
        "estimation_mode": "fisher_gradients",
        "damping": CONSTANT,
        "learning_rate": Decay(0.1, math.inf),
        "curvature_decay": 0.0,
    }

    def two_updates(**changes: int) -> list[np.ndarray]:
        return updates(make_kfac(log_psi, **options, **changes), params, [random_batch(0)] * 2)

    first, second = found = two_updates()
    np.testing.assert_array_equal(two_updates(), found)
    for other in (second, two_updates(seed=1)[0], two_updates(stream=7)[0]):
        assert np.linalg.norm(other - first) > 0.01 * np.linalg.norm(first)
