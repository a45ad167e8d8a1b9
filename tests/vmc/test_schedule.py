"""Learning rates, limits and memories over a training."""

import jax.numpy as jnp
import numpy as np
import pytest

from vmcjob.vmc.schedule import Decay, FallingDamping, Memory, Plateau


@pytest.mark.parametrize("n", [20, 1000, 100_000])
def test_a_plateau_is_followed_by_a_fall_in_proportion_to_the_training(n: int) -> None:
    """Half of all steps at the full rate, a hundredth of it at the end, however many there are."""
    rate = Plateau(0.1, n, 0.5, 0.01)
    steps = jnp.array([0, n // 2, 3 * n // 4, n, 2 * n])
    wanted = [0.1, 0.1, 0.1 * (0.01 + 0.99 / 2), 0.001, 0.001]
    np.testing.assert_allclose(rate(steps), wanted, rtol=1e-4)


def test_the_limit_of_a_step_falls_as_the_square_of_the_rate() -> None:
    """Where the limit binds at every step, it is the limit that has to let parameters settle."""
    rate, steps = Plateau(0.1, 100, 0.5, 0.01), jnp.arange(101)
    limits = np.array([rate.limit(step, 1e-2) for step in steps])
    np.testing.assert_allclose(limits, 1e-2 * (rate(steps) / 0.1) ** 2, rtol=1e-5)
    assert Decay(0.1, 10.0).limit(jnp.array(50), 1e-2) == 1e-2


def test_a_memory_grows_with_the_training_up_to_its_length() -> None:
    """Ten steps at first, a tenth of a step more with every step, a hundred steps at most."""
    memory = Memory(0.99, 0.1)
    found = [float(memory(jnp.array(step))) for step in (0, 100, 900, 10_000)]
    np.testing.assert_allclose(found, [0.9, 0.95, 0.99, 0.99], rtol=1e-6)
    assert Memory(0.99)(jnp.array(0)) == 0.99


@pytest.mark.parametrize(
    ("step", "variance", "expected"),
    [
        (0, 1e3, 1e-2),  # as it begins
        (0, 5e-3, 5e-3),  # where local energies agree, no more than they differ
        (0, 1e-9, 1e-3),  # and never less than the least
        (90, 1e-1, 1e-3),  # with the step
        (90, 0.4, 4e-3),  # but not where they scatter
        (90, 1e3, 1e-2),  # which makes it no larger than it began
    ],
)
def test_a_damping_falls_with_the_step_and_the_variance_between_its_limits(
    step: int, variance: float, expected: float
) -> None:
    damping = FallingDamping(Decay(1e-2, 10.0, 1e-3), per_variance=1e-2)
    found = damping(jnp.array(step), jnp.array(variance))
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # float32


def test_a_damping_of_before_falls_whatever_the_variance() -> None:
    damping = FallingDamping(Decay(1e-2, 10.0, 1e-3))
    found = damping(jnp.array(90), jnp.array(1e3))
    np.testing.assert_allclose(found, 1e-3, rtol=1e-6)
