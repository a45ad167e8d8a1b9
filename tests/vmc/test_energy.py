"""Batch energies, inside pmap as the loop uses them."""

import jax
import jax.numpy as jnp
import numpy as np

from vmcjob.vmc import devices
from vmcjob.vmc.energy import TALLY_BOUND, Clipping, centred, count, moments

E_LOC = np.array([-1.0, -1.1, -0.9, -1.05, -0.95, -1.0, 60.0, -1.0], np.float32)


def on_devices(fn, batch: np.ndarray):
    """`fn` of a batch inside pmap; the first device's answer."""
    mapped = devices.pmap(lambda slices, _: fn(slices))
    return devices.unreplicate(mapped(devices.shard(batch), jnp.zeros(())))


def test_reported_moments_are_not_clipped() -> None:
    """An outlier counts in full: mean and variance are NumPy's."""
    energy, variance = on_devices(moments, E_LOC)
    np.testing.assert_allclose(energy, E_LOC.mean(), rtol=1e-6)
    np.testing.assert_allclose(variance, E_LOC.var(), rtol=1e-5)


def test_the_variance_of_a_good_wave_function_keeps_its_digits() -> None:
    """Spread 1e-3 around −100 hartree: E[x²] − E[x]² has no digit left in float32."""
    e_loc = (-100 + 1e-3 * np.random.default_rng(0).standard_normal(4096)).astype(np.float32)
    _, variance = on_devices(moments, e_loc)
    np.testing.assert_allclose(variance, e_loc.astype(np.float64).var(), rtol=1e-2)


def test_a_tally_holds_single_steps_within_bounds_and_begins_anew() -> None:
    """The walker at 60 hartree is 61 above the rest, and counts with five mean deviations."""

    def two_steps(e_loc: jax.Array) -> jax.Array:
        left = jnp.full((len(e_loc), 3), 7.0)  # by the comparison, which is no part of the sums
        return count(count(left, e_loc, jnp.asarray(True)), e_loc, jnp.asarray(False))

    tally = on_devices(two_steps, E_LOC)
    away = E_LOC - E_LOC.mean()
    limit = TALLY_BOUND * np.abs(away).mean()
    expected = np.stack([np.ones(len(away)), away, np.clip(away, -limit, limit)], axis=-1)
    n_own = len(tally)
    np.testing.assert_allclose(tally, 2.0 * expected[:n_own], rtol=1e-5)


def test_clipping_holds_outliers_and_counts_them() -> None:
    """Only the outlier moves, to three mean absolute deviations above the mean."""
    clipped, n_clipped = on_devices(Clipping(3.0, "mean").apply, E_LOC)
    limit = E_LOC.mean() + 3.0 * np.abs(E_LOC - E_LOC.mean()).mean()
    np.testing.assert_allclose(clipped, np.minimum(E_LOC, limit), rtol=1e-6)
    assert n_clipped == 1


def test_centring_removes_the_mean_of_all_devices() -> None:
    """Σ(E − ⟨E⟩) = 0."""
    deviations = on_devices(centred, E_LOC)
    np.testing.assert_allclose(deviations, E_LOC - E_LOC.mean(), atol=1e-5)


def test_sharding_and_gathering_are_inverse() -> None:
    """Walkers come back flat and in order."""
    r = np.asarray(jax.random.normal(jax.random.key(0), (8, 2, 3)))
    np.testing.assert_array_equal(devices.gather(devices.shard(r)), r)
