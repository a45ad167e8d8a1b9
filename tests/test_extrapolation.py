"""Energies without variance: lines of a known end, and what is no line."""

import numpy as np
import pytest

from vmcjob.stats import estimate
from vmcjob.verdict.extrapolation import (
    Extrapolation,
    Point,
    extrapolate,
    pool_extrapolations,
    pool_left,
    share_slope,
)

EXACT, SLOPE, LAST_VARIANCE, N_WALKERS = -1.0, 0.5, 0.02, 512


def training(
    seed: int, n: int = 2000, noise: float = 1.0, slope: float = SLOPE, fall: float = 0.3
) -> Extrapolation:
    """A training whose variance falls exponentially, its energy along a line, and its evaluation.

    The mean of so many local energies is off by σ / √N, and the variance by 3 √(2/N) of itself.
    """
    g = np.random.default_rng(seed)
    variance = LAST_VARIANCE + fall * np.exp(-3.0 * np.arange(n) / n)
    measured = variance * (1.0 + 3.0 * np.sqrt(2.0 / N_WALKERS) * g.normal(size=n))
    energy = EXACT + slope * variance + noise * np.sqrt(variance / N_WALKERS) * g.normal(size=n)
    last = LAST_VARIANCE + fall * np.exp(-3.0)
    energies = EXACT + slope * last + np.sqrt(last / N_WALKERS) * g.normal(size=1000)
    variances = last * (1.0 + 3.0 * np.sqrt(2.0 / N_WALKERS) * g.normal(size=1000))
    x, y = estimate(variances), estimate(energies)
    return extrapolate(energy, measured, Point(x.mean, x.error, y.mean, y.error))


@pytest.mark.slow
def test_the_error_bar_covers_the_end_of_the_line_as_often_as_it_says() -> None:
    """In 500 series: unbiased within a fifth of σ, one σ in 62 to 74 % of them."""
    found = [training(seed) for seed in range(500)]
    off = np.array([(one.energy - EXACT) / one.error for one in found if one.energy and one.error])
    assert len(off) == 500
    assert abs(off.mean()) < 0.2
    assert 0.62 < np.mean(np.abs(off) < 1.0) < 0.74


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"n": 100}, "a training of 100 steps is too short for a line"),
        ({"fall": 0.001}, "the variance fell by a factor of"),
        ({"noise": 30.0}, "energy and variance are correlated by"),
        ({"slope": -0.5}, "energy and variance are correlated by -"),
    ],
)
def test_what_is_no_line_is_not_extrapolated(more: dict, why: str) -> None:
    for seed in range(20):
        found = training(seed, **more)
        assert found.energy is None
        assert found.why.startswith(why)


def test_what_is_left_is_the_rest_of_the_line() -> None:
    """E − E₀ of a line, in trainings of any length, within three errors that the noise gives."""
    for n in (100, 400, 2000):
        off = []
        for seed in range(20):
            found = training(seed, n=n)
            assert found.end is not None
            if found.left is not None:
                off.append((found.left - SLOPE * found.end.x) / found.left_noise)
        assert len(off) >= 10
        assert np.mean(np.abs(off) < 3.0) >= 0.9


def test_what_is_left_and_the_extrapolated_energy_are_of_one_line() -> None:
    """E₀ is the energy less what is left, also by the slope of a sweep."""
    own = sweep(2)
    for found in (own[0], share_slope(own)[0]):
        assert found.energy is not None
        assert found.left is not None
        assert found.end is not None
        assert found.energy == pytest.approx(found.end.y - found.left, rel=1e-12)


def test_what_is_left_is_not_known_where_chance_makes_the_slope() -> None:
    """The variance hardly falls, and energies scatter: no guess is better than a wrong one."""
    found = [training(seed, fall=0.001, noise=3.0) for seed in range(20)]
    assert sum(one.left is not None for one in found) <= 2


def test_runs_share_the_error_of_what_they_have_left() -> None:
    """Seeds do not average away that the line is an assumption; one unknown makes all unknown."""
    one = Extrapolation(None, None, 1.0, "", left=2e-3, left_error=1e-3)
    assert pool_left([one] * 4) == pytest.approx((2e-3, 1e-3))
    assert pool_left([one, Extrapolation(None, None, None, "too short")]) is None


def test_runs_are_pooled_by_their_errors_and_one_without_speaks_for_all() -> None:
    both = [Extrapolation(-1.0, 0.1, 1.0, ""), Extrapolation(-1.3, 0.2, 2.0, "")]
    pooled = pool_extrapolations(both)
    assert pooled.energy == pytest.approx(-1.06)
    assert pooled.error == pytest.approx((1 / 0.1**2 + 1 / 0.2**2) ** -0.5)
    none = pool_extrapolations([*both, Extrapolation(None, None, None, "too short")])
    assert none == Extrapolation(None, None, None, "too short")


N_SWEEP = 8


def sweep(seed: int, **last) -> list[Extrapolation]:
    """Trainings of one slope; the last one may be another."""
    seeds = range(N_SWEEP * seed, N_SWEEP * (seed + 1))
    return [training(one, **(last if one == seeds[-1] else {})) for one in seeds]


@pytest.mark.slow
def test_with_one_slope_the_error_bar_covers_as_often_as_it_says() -> None:
    """In 60 sweeps of eight; the runs of one share an error, and so do not miss independently."""
    found = [one for seed in range(60) for one in share_slope(sweep(seed))]
    off = np.array([(one.energy - EXACT) / one.error for one in found if one.energy and one.error])
    assert len(off) == 60 * N_SWEEP
    assert abs(off.mean()) < 0.2
    assert 0.60 < np.mean(np.abs(off) < 1.0) < 0.76


def test_a_run_without_a_line_has_that_of_its_sweep() -> None:
    """Its variance did not fall, as where it starts from a neighbour's parameters."""
    own = sweep(0, fall=0.001)
    assert own[-1].energy is None
    shared = share_slope(own)
    assert len({one.slope for one in shared}) == 1
    assert shared[-1].energy == pytest.approx(EXACT, abs=4.0 * (shared[-1].error or 0.0))
    assert (shared[-1].error or 1.0) < 0.1 * SLOPE * LAST_VARIANCE


def test_slopes_that_disagree_make_all_errors_larger() -> None:
    """One of eight has twice the slope."""
    alike, unlike = share_slope(sweep(1)), share_slope(sweep(1, slope=2.0 * SLOPE))
    assert (unlike[0].error or 0.0) > 3.0 * (alike[0].error or 1.0)


def test_one_line_is_no_slope_of_a_sweep() -> None:
    """And says so of every run."""
    short = [training(seed, n=100) for seed in range(3)]
    found = share_slope([training(9), *short])
    assert {one.why for one in found} == {"1 of 4 runs of the sweep have a line, 2 are needed"}
    assert found[0].energy is None


def test_seeds_of_one_slope_do_not_average_its_error_away() -> None:
    """Four seeds know their mean half as well as one, but none knows the slope any better."""
    point = Extrapolation(-1.0, 5.0, 1.0, "", shared_error=3.0)
    pooled = pool_extrapolations([point] * 4)
    assert pooled.energy == pytest.approx(-1.0)
    assert pooled.error == pytest.approx((3.0**2 + (4.0 / 2.0) ** 2) ** 0.5)
