"""Means and errors of correlated series, held against the theory of AR(1) chains."""

import dataclasses
import math

import numpy as np
import pytest

from vmcjob.stats import (
    Estimate,
    candidate_errors,
    estimate,
    pool,
    standard_error,
    standard_errors,
)


def ar1(phi: float, n: int, rng: np.random.Generator, chains: int = 1) -> np.ndarray:
    """Stationary AR(1) chains of unit variance: x[t+1] = φ x[t] + sqrt(1 - φ²) noise."""
    x = np.empty((chains, n))
    x[:, 0] = rng.normal(size=chains)
    noise = math.sqrt(1.0 - phi**2) * rng.normal(size=(chains, n))
    for t in range(1, n):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    return x


def ar1_error(phi: float, n: int) -> float:
    """The exact standard error of the mean of n steps of a unit-variance AR(1) chain."""
    t = np.arange(1, n)
    return math.sqrt((n + 2.0 * float(((n - t) * phi**t).sum())) / n**2)


def run(mean: float, error: float) -> Estimate:
    """A converged estimate, as of one run of many."""
    return Estimate(mean, error, tau=1.0, n_eff=500.0, n=1000, converged=True, why="")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.mark.parametrize(
    ("phi", "n"), [(0.0, 200), (0.5, 200), (0.9, 200), (0.9, 1000), (0.9, 8192), (0.99, 8192)]
)
def test_two_thirds_of_ar1_chains_have_their_true_mean_within_one_error_bar(phi, n, rng):
    """Coverage is what an error bar means; a naive σ/√n covers 18 % at φ = 0.9, n = 1000.

    68 % is exact theory. The larger of two estimates is reported, so a little more is right. The
    counting error with 400 chains is 2.3 %, and the lower bound lies 2.6 of them below.
    """
    estimates = [estimate(chain) for chain in ar1(phi, n, rng, chains=400)]
    covered = np.mean([abs(item.mean) < item.error for item in estimates])
    twice = np.mean([abs(item.mean) < 2.0 * item.error for item in estimates])
    assert 0.62 < covered < 0.80
    assert 0.90 < twice < 0.99


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_error_and_tau_of_long_ar1_chains_match_theory(phi, rng):
    """Error = σ sqrt((1 + φ) / (1 - φ) / n) and 2τ = (1 + φ) / (1 - φ) to leading order."""
    n = 16384
    estimates = [estimate(chain) for chain in ar1(phi, n, rng, chains=40)]
    error = np.mean([item.error for item in estimates])
    tau = np.mean([item.tau for item in estimates])
    assert error == pytest.approx(ar1_error(phi, n), rel=0.06)
    assert 2.0 * tau == pytest.approx((1.0 + phi) / (1.0 - phi), rel=0.12)
    assert all(item.n_eff == pytest.approx(n / (2.0 * item.tau)) for item in estimates)


@pytest.mark.parametrize("method", ["blocking", "autocorrelations"])
def test_each_method_alone_finds_the_error_of_a_long_chain(method, rng):
    """Two estimators guard each other only when neither is wrong by itself."""
    squares, _ = candidate_errors(ar1(0.9, 16384, rng, chains=40))[method]
    assert math.sqrt(np.mean(squares)) == pytest.approx(ar1_error(0.9, 16384), rel=0.06)


def test_many_series_have_the_errors_that_each_has_alone(rng):
    """To the last digits: sums over a row are taken in another order when it has others beside."""
    rows = np.concatenate([ar1(phi, 500, rng, chains=3) for phi in (0.0, 0.9, 0.99)])
    rows = np.concatenate([rows, np.ones((1, 500)), np.full((1, 500), np.nan)])
    found = standard_errors(rows)
    np.testing.assert_allclose(found, [standard_error(row) for row in rows], rtol=1e-12)
    np.testing.assert_allclose(found[:9], [estimate(row).error for row in rows[:9]], rtol=1e-12)
    assert found[9] == 0.0
    assert found[10] == math.inf
    assert list(standard_errors(rows[:2, :1])) == [math.inf, math.inf]


@pytest.mark.parametrize("method", ["blocking", "autocorrelations"])
def test_degrees_of_freedom_fall_with_the_correlation(method, rng):
    """A longer memory leaves fewer independent blocks, so Student's factor has to grow."""
    chains = np.concatenate([ar1(phi, 1000, rng) for phi in (0.0, 0.98)])
    white, slow = candidate_errors(chains)[method][1]
    assert white > 50.0
    assert slow < 20.0


def test_white_noise_counts_every_sample(rng):
    """Without correlation τ is 1/2 and the error is σ / √n."""
    result = estimate(rng.normal(-1.17, 0.01, size=5000))
    assert result.error == pytest.approx(0.01 / math.sqrt(5000), rel=0.1)
    assert result.tau == pytest.approx(0.5, abs=0.08)
    assert result.converged
    assert result.why == ""


def test_an_anticorrelated_series_claims_no_more_than_its_samples(rng):
    """τ below 1/2 would promise more independent samples than there are steps."""
    result = estimate(ar1(-0.8, 1000, rng)[0])
    assert result.tau == 0.5
    assert result.n_eff == 1000.0
    assert result.error >= 0.9 / math.sqrt(1000)


def test_the_estimate_follows_shift_and_scale(rng):
    """Energies of -1e3 hartree with fluctuations of 1e-6 must not lose digits on the way."""
    x = ar1(0.7, 2000, rng)[0]
    plain, moved = estimate(x), estimate(1e-6 * x - 1e3)
    assert moved.mean == pytest.approx(1e-6 * plain.mean - 1e3, abs=1e-12)
    assert moved.error == pytest.approx(1e-6 * plain.error, rel=1e-6)


def test_the_input_is_left_alone(rng):
    """A statistic that sorts or centres in place would corrupt what the caller stores next."""
    x = rng.normal(size=300)
    before = x.copy()
    estimate(x)
    np.testing.assert_array_equal(x, before)


def test_a_constant_series_has_no_error():
    """An exact eigenstate has the same local energy everywhere."""
    result = estimate(np.full(100, -0.5), variance=np.zeros(100))
    assert (result.mean, result.error, result.n_eff) == (-0.5, 0.0, 100.0)
    assert result.converged


def test_walkers_that_are_stuck_are_not_taken_for_an_exact_result():
    """Frozen walkers also give a constant series, but with different local energies."""
    result = estimate(np.full(100, -0.47), variance=np.full(100, 0.04))
    assert not result.converged
    assert "stuck" in result.why
    assert result.error == pytest.approx(0.2)


def test_a_trend_is_flagged(rng):
    """A series that still relaxes has no mean yet, whatever its error bar says."""
    result = estimate(rng.normal(size=1000) + np.linspace(0.0, 1.0, 1000))
    assert not result.converged
    assert "drifts" in result.why


def test_a_jump_between_two_constants_is_flagged():
    """Both halves have no error of their own, so their difference is beyond all bars."""
    result = estimate(np.repeat([-1.0, -2.0], 500))
    assert not result.converged
    assert result.error > 0.1


def test_a_stationary_series_is_seldom_called_drifting(rng):
    """A check that cries wolf is switched off; three error bars are exceeded by chance in < 1 %."""
    flagged = ["drifts" in estimate(chain).why for chain in ar1(0.5, 500, rng, chains=300)]
    assert np.mean(flagged) < 0.02


def test_a_short_correlated_series_says_so_and_stays_careful(rng):
    """With ten independent samples the error is known to 25 % at best: a verdict would be luck."""
    estimates = [estimate(chain) for chain in ar1(0.9, 200, rng, chains=200)]
    assert np.mean([item.converged for item in estimates]) < 0.1
    assert np.mean(["independent samples" in item.why for item in estimates]) > 0.9
    assert np.mean([item.error for item in estimates]) > ar1_error(0.9, 200)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 10])
def test_a_handful_of_samples_gets_students_wide_error(n, rng):
    """Mutant in mind: without Student's factor two samples cover 50 %, not 68 %."""
    estimates = [estimate(sample) for sample in rng.normal(size=(2000, n))]
    assert np.mean([abs(item.mean) < item.error for item in estimates]) > 0.64
    assert not any(item.converged for item in estimates)


@pytest.mark.parametrize(
    ("series", "why"),
    [
        ([], "no samples"),
        ([1.0], "only one sample"),
        ([1.0, math.nan, math.inf], "2 of 3 samples are not"),
    ],
)
def test_what_has_no_error_gets_an_infinite_one(series, why):
    """Zero or NaN would read as certainty somewhere downstream."""
    result = estimate(np.array(series))
    assert result.error == math.inf
    assert not result.converged
    assert why in result.why


def test_agreeing_runs_shrink_the_error_by_the_square_root_of_their_number():
    """Four equal runs halve the error; equal means show no scatter to widen it."""
    result = pool([run(-1.0, 0.01)] * 4)
    assert result.mean == pytest.approx(-1.0)
    assert result.error == pytest.approx(0.005)
    assert (result.n, result.n_eff, result.tau) == (4000, 2000.0, 1.0)
    assert result.converged


def test_runs_that_are_alike_are_pooled_by_length():
    """An error that came out half as large is luck: 0 ± 1 and 1 ± 2 give ½ ± ½ sqrt(5)."""
    result = pool([run(0.0, 1.0), run(1.0, 2.0)])
    assert result.mean == pytest.approx(0.5)
    assert result.error == pytest.approx(math.sqrt(5) / 2)


def test_a_longer_run_counts_for_more():
    """Four times the steps, four times the weight: 0 ± 1 and 1 ± ½ give 0.8 ± sqrt(0.2)."""
    longer = dataclasses.replace(run(1.0, 0.5), n=4000)
    result = pool([run(0.0, 1.0), longer])
    assert result.mean == pytest.approx(0.8)
    assert result.error == pytest.approx(math.sqrt(0.2))


def test_a_vague_run_among_precise_ones_is_outweighed():
    """Its wave function is another one: by length, 0 ± 1 and 1 ± 10 would give ½ ± 5."""
    result = pool([run(0.0, 1.0), run(1.0, 10.0)])
    assert result.mean == pytest.approx(1 / 101)
    assert result.error == pytest.approx(10 / math.sqrt(101))


def test_pooling_does_not_lean_towards_runs_with_small_errors(rng):
    """Local energies have a long tail: a run that missed it has a low mean and a small error.

    Mutant in mind: weights 1/e² come out low by seven of these error bars.
    """
    means, mutants = [], []
    for _ in range(400):
        parts = [estimate(chain) for chain in rng.exponential(size=(4, 60))]
        means.append(pool(parts).mean)
        weights = [1 / part.error**2 for part in parts]
        mutants.append(np.average([part.mean for part in parts], weights=weights))
    bar = np.std(means) / math.sqrt(len(means))
    assert abs(np.mean(means) - 1.0) < 3 * bar
    assert np.mean(mutants) - 1.0 < -5 * bar


def test_disagreeing_runs_enlarge_the_error_and_are_reported():
    """Two optima ten error bars apart: the mean is known no better than half their distance."""
    result = pool([run(-1.0, 0.01), run(-1.1, 0.01)])
    assert result.error > 0.05
    assert not result.converged
    assert "disagree" in result.why


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("scatter", [0.0, 1.0, 3.0])
def test_pooled_errors_cover_the_truth_with_and_without_scatter_between_runs(runs, scatter, rng):
    """Mutant in mind: fixed-effect pooling covers 25 % for ten runs that scatter threefold."""
    covered = []
    for _ in range(600):
        means = rng.normal(size=runs) + scatter * rng.normal(size=runs)
        result = pool([run(mean, 1.0) for mean in means])
        covered.append(abs(result.mean) < result.error)
    assert 0.60 < np.mean(covered) < 0.80


def test_one_run_is_returned_as_it_is():
    """Nothing is to be learned from the scatter of one."""
    single = run(-1.0, 0.01)
    assert pool([single]) is single


def test_a_doubtful_run_makes_the_pool_doubtful():
    """One short run among good ones must show, once, however many share its kind of reason."""
    short = dataclasses.replace(run(-1.0, 0.1), converged=False, why="too short: 12 samples")
    shorter = dataclasses.replace(short, why="too short: 9 samples", n_eff=9)
    drifting = dataclasses.replace(short, why="drifts: by 4 error bars")
    result = pool([run(-1.0, 0.01), short, shorter, drifting])
    assert not result.converged
    assert result.why == ("2 of 4 runs: too short: 9 samples; 1 of 4 runs: drifts: by 4 error bars")


def test_exact_runs_that_agree_to_rounding_pool_without_division_by_zero():
    """Runs without an error each (exact eigenstates) still have a common mean."""
    for mean in (-0.5, 0.0):
        result = pool([run(mean, 0.0)] * 3)
        assert result.mean == pytest.approx(mean)
        assert result.error < 1e-15
        assert result.converged


@pytest.mark.parametrize("bad", [[], [run(0.0, math.inf), run(0.0, 1.0)]])
def test_pooling_refuses_what_has_no_finite_error(bad):
    """Such a run carries no weight; leaving it out is the caller's decision, with a reason."""
    with pytest.raises(ValueError, match="finite mean and error"):
        pool(bad)
