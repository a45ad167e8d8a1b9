"""Walkers that go along with nuclei which have moved."""

import numpy as np
import pytest

from vmcjob.vmc.warp import follow

NUCLEI = np.array([[0.0, 0.0, -0.7], [0.0, 0.0, 0.7], [1.0, 2.0, 0.0]])


@pytest.fixture
def r() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(50, 4, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nuclei_that_stay_leave_every_bit(r: np.ndarray, dtype: type) -> None:
    moved = follow(r.astype(dtype), NUCLEI, NUCLEI)
    assert moved.dtype == dtype
    np.testing.assert_array_equal(moved, r.astype(dtype))


def test_a_molecule_that_is_shifted_takes_all_walkers_along(r: np.ndarray) -> None:
    shift = np.array([3.0, -1.0, 20.0])
    np.testing.assert_allclose(follow(r, NUCLEI, NUCLEI + shift), r + shift, rtol=1e-13)


def test_an_electron_goes_with_the_nucleus_that_it_is_near() -> None:
    """At a nucleus wholly, half-way between two with both, and far away with all alike."""
    after = NUCLEI + np.array([[0.0, 0.0, -0.1], [0.0, 0.0, 0.3], [0.0, 0.0, 0.0]])
    places = np.array([NUCLEI[1], [0.0, 0.0, 0.0], [1e6, 0.0, 0.0]])
    moved = follow(places, NUCLEI, after)
    np.testing.assert_array_equal(moved[0], after[1])
    weight = 0.7**-4 / (2 * 0.7**-4 + 5.0**-2)  # the third one is √5 away
    np.testing.assert_allclose(moved[1], [0.0, 0.0, 0.2 * weight], rtol=1e-12)
    np.testing.assert_allclose(moved[2] - places[2], [0.0, 0.0, 0.2 / 3], rtol=1e-4)
