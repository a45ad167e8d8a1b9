"""Verdicts: of the statistics of an energy, of its state and of its training."""

from typing import Any

import numpy as np
import pytest

from vmcjob.stats import Estimate, estimate
from vmcjob.verdict.judgement import About, Judgement, explain, judge, verdict_of

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
