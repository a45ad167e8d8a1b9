"""Updates that the walkers do not bear are shortened."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Batch, Params
from vmcjob.vmc.trust import effective_sample_size, shortened

N_WALKERS = 4000


def log_psi(params: Params, r: jax.Array) -> jax.Array:
    """log|ψ| of a Gaussian of spread 1/√(2 a) in |ψ|²."""
    return -0.5 * params["a"] * jnp.sum(r**2)


def walkers() -> jax.Array:
    """From |ψ|² with a = 1, of three dimensions."""
    return jax.random.normal(jax.random.key(0), (N_WALKERS, 1, 3)) / 2**0.5


def update(new: float, least: float) -> tuple[float, float, float]:
    """Where an update from a = 1 to `new` ends, its effective sample size, and its part."""

    def step(r: jax.Array, _: None) -> tuple[jax.Array, jax.Array, jax.Array]:
        old, wanted = {"a": jnp.array(1.0)}, jnp.asarray([new])
        log_abs = jax.vmap(log_psi, (None, 0))(old, r)
        nothing = jnp.zeros_like(log_abs)
        batch = Batch(r, log_abs, nothing, nothing, jnp.asarray(0))
        params, trust = shortened(log_psi, old, wanted, batch, least)
        return params["a"], trust.ess, trust.part

    found = devices.pmap(step)(devices.shard(walkers()), None)
    a, ess, part = (float(devices.unreplicate(value)) for value in found)
    return a, ess, part


def exact_ess(a: float) -> float:
    """⟨w⟩²/⟨w²⟩ for Gaussians, w = exp(−(a − 1) r²): ((2a − 1) / a²)^(3/2)."""
    return max(0.0, (2.0 * a - 1.0) / a**2) ** 1.5


def test_the_effective_sample_size_is_that_of_gaussians() -> None:
    """Within what 4000 walkers know of it."""
    _, ess, part = update(1.5, 0.1)
    assert part == 1.0
    assert ess == pytest.approx(exact_ess(1.5), rel=0.03)


def test_an_update_is_halved_until_enough_walkers_count() -> None:
    """Six times as narrow a wave function leaves 4 % of the walkers; an eighth of the way, 80 %."""
    a, ess, part = update(6.0, 0.5)
    assert part < 1.0
    assert np.log2(part) == round(np.log2(part))
    assert a == pytest.approx(1.0 + 5.0 * part)
    assert ess >= 0.5
    assert exact_ess(1.0 + 10.0 * part) < 0.5 + 0.05


def test_an_update_that_no_halving_saves_is_not_made() -> None:
    """A growing Gaussian, even a 64th of the way there."""
    a, ess, part = update(-1e6, 0.5)
    assert (a, part) == (1.0, 0.0)
    assert ess == pytest.approx(1.0)


def test_numbers_that_are_not_finite_are_no_matter_of_shortening() -> None:
    """They must reach whoever goes back to the last commit."""
    a, _, part = update(float("nan"), 0.5)
    assert np.isnan(a)
    assert part == 1.0


def test_equal_wave_functions_keep_every_walker() -> None:
    """Whatever their norms."""

    def step(r: jax.Array, _: None) -> jax.Array:
        return effective_sample_size(jnp.full(r.shape[0], -700.0))

    found = devices.pmap(step)(devices.shard(walkers()), None)
    assert float(devices.unreplicate(found)) == pytest.approx(1.0)
