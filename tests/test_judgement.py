"""Verdicts: of the statistics of an energy, of its state and of its training."""

from typing import Any

import numpy as np
import pytest

from vmcjob.stats import Estimate, Walkers, estimate, pool
from vmcjob.verdict.judgement import About, Judgement, explain, judge, verdict_of
from vmcjob.verdict.pooled import judge_together

N, N_WALKERS, EXACT, LAST = 1000, 512, -1.0, 0.002
ABOUT = About(hartree_fock=-0.9, n_walkers=N_WALKERS, spins=(1, 1))


def training(seed: int, *, slope: float = 0.1, n: int = N) -> dict[str, np.ndarray]:
    """The variance falls to a tenth, and the energy with it along a line."""
    g = np.random.default_rng(seed)
    variance = LAST * (1.0 + 9.0 * np.exp(-8.0 * np.arange(n) / n))
    energy = EXACT + slope * variance + np.sqrt(variance / N_WALKERS) * g.normal(size=n)
    return {"energy": energy, "variance": variance * (1.0 + 0.05 * g.normal(size=n))}


def evaluation(seed: int, *, slope: float = 0.1, n: int = N, **more: Any) -> dict[str, np.ndarray]:
    """The end of such a training, a singlet."""
    g = np.random.default_rng(100 + seed)
    s2, outermost = np.full(n, np.nan), np.full(n, np.nan)
    s2[9::10] = g.normal(0.0, 1e-3, n // 10)
    outermost[9::10] = g.normal(2.0, 0.1, n // 10)
    energy = EXACT + slope * LAST + (LAST / N_WALKERS) ** 0.5 * g.normal(size=n)
    variance = LAST * (1.0 + 0.05 * g.normal(size=n))
    found = {"energy": energy, "variance": variance, "s2": s2, "outermost": outermost}
    return found | more


def judged(train: dict, evaluate: dict, about: About = ABOUT) -> tuple[Estimate, list[Judgement]]:
    energy = estimate(evaluate["energy"])
    return energy, [judge(train, evaluate, energy, about)]


def words_of(energy: Estimate, found: list[Judgement]) -> str:
    return explain(energy, found, [0], ["h2-0123456789"])


def test_a_right_run_is_converged_without_a_word() -> None:
    """A hundred of them; verdicts that cry wolf are not read."""
    found = [judged(training(seed), evaluation(seed)) for seed in range(100)]
    verdicts = [verdict_of(*one) for one in found]
    assert verdicts.count("converged") >= 97
    assert {words_of(*one) for one, v in zip(found, verdicts, strict=True) if v == "converged"} == {
        ""
    }


def test_much_that_is_left_is_unsettled() -> None:
    """A slope of 2.5 leaves 5 mHa. The command trains on for as long again."""
    for seed in range(20):
        found = judged(training(seed, slope=2.5), evaluation(seed, slope=2.5))
        assert verdict_of(*found) == "unsettled"
        why = words_of(*found)
        assert why.startswith("some ")
        assert why.endswith(" trains on")
        assert " mHa are left to gain by training, perhaps " in why
        assert "mHa; vmcjob resume h2-0123456789 --more-training 1000" in why


def test_what_may_be_left_counts_and_not_only_the_estimate() -> None:
    """An estimate of 1.4 mHa that holds within a factor of two may stand for 2.8 mHa.

    The estimate itself scatters by 0.25 mHa: it is below 0.8 mHa in one run of a hundred.
    """
    verdicts = [
        verdict_of(*judged(training(seed, slope=0.7), evaluation(seed, slope=0.7)))
        for seed in range(20)
    ]
    assert verdicts.count("unsettled") >= 19


@pytest.mark.parametrize(
    ("every", "factor", "last", "verdict"),
    [
        (4, 300.0, LAST, "unsettled"),
        (N, 5000.0, LAST, "converged"),  # one far step moves the mean over all steps as much
        (4, 300.0, 0.01 * LAST, "converged"),  # few walkers have it, but it is small
    ],
)
def test_a_large_variance_at_few_walkers_is_no_state_at_rest(
    every: int, factor: float, last: float, verdict: str, monkeypatch
) -> None:
    """A molecule of sodium was converged 9 mHa too high, and a silicon atom 4 mHa.

    The energy did not follow the median of their variance.
    """
    monkeypatch.setattr("tests.test_judgement.LAST", last)
    evaluate, g = evaluation(0, slope=0.02), np.random.default_rng(1)
    far = np.arange(0, N, every)
    evaluate["variance"][far] *= factor
    evaluate["energy"][far] += (factor * last / N_WALKERS) ** 0.5 * g.normal(size=len(far))
    found = judged(training(0, slope=0.02), evaluate)
    assert verdict_of(*found) == verdict
    is_told = "at few walkers, says that more is left" in words_of(*found)
    assert is_told == (verdict == "unsettled")


@pytest.mark.parametrize("slope", [0.3, 0.5])
def test_much_that_is_left_is_seen_through_noise(slope: float, monkeypatch) -> None:
    """3 or 5 mHa that noise hides from the column `left`; one such run of sixty was converged.

    Catches an estimate that counts only where two of its errors are smaller: so B⁺ was converged
    3.4(5) mHa above the exact energy.
    """
    monkeypatch.setattr("tests.test_judgement.LAST", 0.01)
    verdicts = [
        verdict_of(*judged(training(seed, slope=slope), evaluation(seed, slope=slope)))
        for seed in range(60)
    ]
    assert "converged" not in verdicts


def test_a_training_that_nobody_can_judge_is_unsettled() -> None:
    """Fifty steps in front of an evaluation whose error bar is small."""
    train = training(0, n=50)
    found = judged(train, evaluation(0))
    assert verdict_of(*found) == "unsettled"
    assert "nobody can tell whether its training has come to rest" in words_of(*found)


def test_a_large_error_excuses_no_training(monkeypatch) -> None:
    """With an error of 1 mHa, the training's end is known within some 11 mHa: it may still fall.

    Its variance is level, and says nothing of what is left either. Catches a limit in error bars
    alone, which such a run keeps at any size of its error.
    """
    monkeypatch.setattr("tests.test_judgement.LAST", 0.5)
    for seed in range(10):
        end = {name: x[-N:] for name, x in training(seed, slope=0.0, n=5 * N).items()}
        found = judged(end, evaluation(seed, slope=0.0))
        assert verdict_of(*found) == "unsettled"


def test_a_wrong_spin_is_suspect_and_named() -> None:
    s2 = np.full(N, np.nan)
    s2[9::10] = np.random.default_rng(0).normal(0.82, 0.1, N // 10)
    found = judged(training(0), evaluation(0, s2=s2))
    assert verdict_of(*found) == "suspect"
    why = words_of(*found)
    assert "a singlet has 0: it looks like a mixture of a singlet and a triplet" in why
    assert "; vmcjob keys pretrain " in why


def test_an_electron_far_from_all_nuclei_is_suspect() -> None:
    """As in the anion of helium, which is not bound."""
    found = judged(training(0), evaluation(0, outermost=np.full(N, 13.0)))
    assert verdict_of(*found) == "suspect"
    assert words_of(*found).startswith("an electron is not bound: 13 bohr from the nearest nucleus")


def test_few_steps_of_evaluation_are_not_yet_enough() -> None:
    """The command asks for as many more as there should be."""
    found = judged(training(0), evaluation(0, n=20))
    assert verdict_of(*found) == "not yet"
    assert found[0].n_eff == pytest.approx(3.7, abs=0.1)
    # 20 · 30 / 3.7 steps are needed, and a fifth more to be sure.
    assert words_of(*found).endswith("; vmcjob resume h2-0123456789 --more-steps 171 goes on")


@pytest.mark.parametrize("slope", [0.1, 2.5])
def test_a_run_of_before_keeps_its_verdict(slope: float) -> None:
    """Its spin was not measured, and a training that has much left was called converged then."""
    evaluate = evaluation(0, slope=slope)
    del evaluate["s2"], evaluate["outermost"]
    found = judged(training(0, slope=slope), evaluate)
    assert verdict_of(*found) == "converged"
    assert words_of(*found) == "spin not measured"


def test_seeds_are_named_and_one_speaks_for_all() -> None:
    good, bad = (judged(training(0), evaluation(k))[1][0] for k in range(2))
    bad = bad._replace(findings=("lies 5 mHa above Hartree-Fock",))
    energy = estimate(evaluation(0)["energy"])
    assert verdict_of(energy, [good, bad]) == "suspect"
    why = explain(energy, [good, bad], [0, 1], ["a-0", "a-1"])
    assert why.startswith("seed 1: lies 5 mHa above Hartree-Fock; vmcjob ")


def test_a_note_names_its_seed_unless_it_is_about_all_seeds() -> None:
    """Contradictory forces of one run of many could not be found."""
    first, second = (judged(training(0), evaluation(k))[1][0] for k in range(2))
    energy = estimate(evaluation(0)["energy"])
    pair = [first._replace(notes=("a", "b")), second._replace(notes=("c", "b"))]
    assert explain(energy, pair, [4, 7], ["h-0", "h-1"]) == "b; seed 4: a; seed 7: c"
    assert explain(energy, pair[:1], [4], ["h-0"]) == "a; b"


def test_an_energy_that_was_not_trained_is_not_converged() -> None:
    """Catches a run of no training steps from another run, which had no reason left."""
    untrained = {name: np.zeros(0) for name in ("energy", "variance")}
    found = judged(untrained, evaluation(0))
    assert verdict_of(*found) == "unsettled"
    assert words_of(*found).startswith("it was not trained, ")


@pytest.mark.parametrize(("ratio", "verdict"), [(1.6, "converged"), (1.8, "not yet")])
def test_walkers_that_differ_more_than_the_error_bar_tells_count(
    ratio: float, verdict: str, monkeypatch
) -> None:
    """A slow mode that blocking does not see made the error bar half as large as it should be.

    The scatter of walkers showed it, but counted from three error bars on only. Right runs have
    ratios up to 1.6.
    """
    monkeypatch.setattr("tests.test_judgement.LAST", 0.05)
    evaluate = evaluation(0, slope=0.01)
    energy = estimate(evaluate["energy"])
    spread = ratio * energy.error * N_WALKERS**0.5
    walkers = Walkers(n=N_WALKERS, steps=N, n_apart=0, shift=0.0, spread=spread)
    found = [judge(training(0, slope=0.01), evaluate, energy, ABOUT._replace(walkers=walkers))]
    assert verdict_of(energy, found) == verdict
    words = f"by how its walkers differ, its error is {1e3 * walkers.error:.2g} mHa"
    assert (words in words_of(energy, found)) == (verdict == "not yet")


def test_a_spec_that_cannot_be_read_leaves_no_verdict() -> None:
    """Without it, a triplet in place of a singlet was converged, "spin not measured"."""
    unread = ABOUT._replace(spins=None, n_walkers=None, unread="its spec cannot be read: no file")
    found = judged(training(0), evaluation(0), unread)
    assert verdict_of(*found) == "not yet"
    assert words_of(*found).startswith("its spec cannot be read: no file")


def noisy(seed: int, left: float, s2: float = 0.0) -> tuple[Estimate, Judgement]:
    """A short evaluation after a long training: its error of 2 mHa hides what is left."""
    g = np.random.default_rng(seed)
    n, n_train, variance = 100, 5000, 0.01
    falling = variance * (1.0 + 60.0 * np.exp(-10.0 * np.arange(n_train) / n_train))
    slope = left / variance
    train = {
        "energy": EXACT + slope * falling + 0.02 * g.normal(size=n_train),
        "variance": falling * np.exp(0.05 * g.normal(size=n_train)),
    }
    evaluate = {
        "energy": EXACT + left + 0.02 * g.normal(size=n),
        "variance": variance * np.exp(0.05 * g.normal(size=n)),
        "s2": s2 + 0.4 * g.normal(size=n),
    }
    energy = estimate(evaluate["energy"], variance=evaluate["variance"])
    return energy, judge(train, evaluate, energy, About(spins=(1, 1)))


@pytest.mark.parametrize(
    ("left", "s2", "hartree_fock", "verdict", "words"),
    [
        (0.0002, 0.0, 0.05, "converged", ""),
        (
            0.0022,
            0.0,
            0.05,
            "unsettled",
            " are left to gain by training, on average; vmcjob resume",
        ),
        (0.0002, 0.08, 0.05, "suspect", "of all runs, its S² is 0.0"),
        (0.0002, 0.0, -0.0022, "suspect", "the mean lies 2"),
    ],
)
def test_a_mean_of_many_runs_is_judged_by_its_own_error(
    left: float, s2: float, hartree_fock: float, verdict: str, words: str
) -> None:
    """Each run excused what it had left, its spin or its Hartree–Fock by its own error.

    The mean of 32 runs then was converged four of its error bars off.
    """
    energies, judgements = zip(*(noisy(seed, left, s2) for seed in range(32)), strict=True)
    chosen = [k for k, one in enumerate(judgements) if not (one.findings or one.unsettled)]
    found = [judgements[k] for k in chosen]
    assert len(found) > 24
    pooled = pool([energies[k] for k in chosen])
    assert verdict_of(pooled, found) == "converged"
    together = judge_together(pooled, found, EXACT + hartree_fock)
    assert verdict_of(pooled, found, together) == verdict
    assert words in explain(pooled, found, chosen, ["h2"] * len(found), together)


def test_a_mean_gives_no_advice_about_a_spin_that_no_reason_names() -> None:
    """Where a run has a finding of its own, the mean adds none, and no advice either."""
    energies, judgements = zip(*(noisy(seed, 0.0002, 0.08) for seed in range(32)), strict=True)
    found = [one._replace(findings=()) for one in judgements]
    found[0] = found[0]._replace(findings=("step 1 alone carries its mean",))
    together = judge_together(pool(list(energies)), found, None)
    assert (together.findings, together.has_other_spin) == ((), False)
