"""Minimum, depth and frequency of potential-energy curves, against the exact one of H₂."""

import numpy as np
import pytest

from vmcjob.results.curve import MIN_POINTS, NoMinimumError, Value, fit

# Bohr and hartree: Pachucki, Phys. Rev. A 82, 032509 (2010), and Wolniewicz before him.
DISTANCE = np.array([0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6, 3.0, 4.0, 5.0])
ENERGY = np.array(
    [
        *(-1.0200566664, -1.1245397196, -1.1649352434, -1.1744757142, -1.1685833733),
        *(-1.1550683758, -1.1381329571, -1.1201321168, -1.1024226058, -1.0857912500),
        *(-1.0573262689, -1.0163902529, -1.0037856572),
    ]
)
MINIMUM, DEPTH, FREQUENCY = 1.4011, 0.1744757, 4401.2  # bohr, hartree, cm⁻¹
REDUCED_MASS = 1.00727647 / 2.0  # of two protons, dalton


@pytest.mark.parametrize("error", [1e-6, 2e-5, 1e-4])
def test_the_curve_of_hydrogen_gives_its_constants(error: float) -> None:
    """As well as the error bars of the points allow."""
    noise = error * np.random.default_rng(7).standard_normal(ENERGY.size)
    found = fit(DISTANCE, ENERGY + noise, np.full(ENERGY.size, error))
    frequency = found.frequency(REDUCED_MASS)
    depth = found.depth(Value(-1.0, 0.0))
    assert found.minimum.value == pytest.approx(MINIMUM, abs=3 * found.minimum.error + 1e-4)
    assert depth.value == pytest.approx(DEPTH, abs=3 * depth.error + 2e-6)
    assert frequency.value == pytest.approx(FREQUENCY, abs=3 * frequency.error + 6.0)
    assert frequency.error < 60.0 * max(1.0, error / 1e-4)


@pytest.mark.slow
def test_errors_cover_the_truth() -> None:
    """Of 100 noisy curves two thirds, or some more, are within one error bar."""
    random = np.random.default_rng(11)
    error = np.full(ENERGY.size, 5e-5)
    inside = 0
    for seed in range(100):
        found = fit(DISTANCE, ENERGY + error * random.standard_normal(ENERGY.size), error, seed)
        inside += abs(found.minimum.value - MINIMUM) < found.minimum.error
    assert 54 <= inside <= 90


@pytest.mark.parametrize("error", [5e-5, 2e-4, 1e-3])
@pytest.mark.parametrize("at", [[1.0, 1.2, 1.4, 1.6, 2.0], [1.2, 1.4, 1.6, 1.8]])
def test_a_few_points_have_errors_that_cover_what_they_leave_open(
    at: list[float], error: float
) -> None:
    """Noise alone would be 10 to 200 cm⁻¹, and a parabola is off by 300, a cubic by 70.

    Of 20 noisy curves most are within two error bars, where by noise alone none would be.
    """
    random, inside = np.random.default_rng(5), np.zeros(2)
    energy = ENERGY[np.isin(DISTANCE, at)]
    for seed in range(20):
        noisy = energy + error * random.standard_normal(energy.size)
        found = fit(at, noisy, np.full(energy.size, error), seed)
        frequency = found.frequency(REDUCED_MASS)
        assert found.n_points == len(at)
        inside[0] += abs(found.minimum.value - MINIMUM) < 2.0 * found.minimum.error
        inside[1] += abs(frequency.value - FREQUENCY) < 2.0 * frequency.error
    assert inside.min() >= 12


def test_the_fit_passes_through_its_points() -> None:
    """A plot draws it between the first and the last of them."""
    found = fit(DISTANCE, ENERGY, np.full(ENERGY.size, 1e-5))
    kept = (found.first <= DISTANCE) & (found.last >= DISTANCE)
    assert kept.sum() == found.n_points < ENERGY.size
    np.testing.assert_allclose(found(DISTANCE[kept]), ENERGY[kept], atol=5e-5)
    shuffled = np.random.default_rng(3).permutation(ENERGY.size)
    again = fit(DISTANCE[shuffled], ENERGY[shuffled], np.full(ENERGY.size, 1e-5))
    assert again.minimum == found.minimum


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (slice(0, MIN_POINTS - 1), "at least 4"),
        (slice(0, 4), "add longer distances"),
        (slice(3, None), "add shorter distances"),
    ],
)
def test_what_has_no_minimum_is_refused(kept: slice, words: str) -> None:
    """Nothing is extrapolated."""
    with pytest.raises(NoMinimumError, match=words):
        fit(DISTANCE[kept], ENERGY[kept], np.full(ENERGY[kept].size, 1e-5))


def test_errors_that_hide_the_minimum_are_told() -> None:
    """Where noise is as deep as the well, no bond length is made up."""
    with pytest.raises(NoMinimumError):
        fit(DISTANCE, ENERGY, np.full(ENERGY.size, 0.5))
