"""What a run's own numbers say against it, each thing alone."""

import re
from itertools import accumulate

import numpy as np
import pytest

from vmcjob.stats import estimate
from vmcjob.verdict.evidence import above_best_stretch
from vmcjob.verdict.findings import findings, in_words

RNG = np.random.default_rng(7)  # of tolerances that hold for any seed
N = 1000
LEVEL, HARTREE_FOCK = -1.12, -1.07


def series(energies: np.ndarray, variance: float = 0.01) -> dict[str, np.ndarray]:
    """A series with these energies, and a variance that fluctuates a little."""
    noise = RNG.normal(1.0, 0.05, len(energies))
    return {"energy": energies, "variance": variance * noise}


def noise(mean: float, n: int = N, sigma: float = 5e-3) -> np.ndarray:
    """White noise around an energy, in hartree."""
    return RNG.normal(mean, sigma, n)


def correlated(n: int, memory: float = 0.8) -> np.ndarray:
    """Such noise where a step remembers most of the one before, of τ = 4.5 steps."""
    kicks = RNG.normal(0.0, 5e-3 * (1.0 - memory**2) ** 0.5, n)
    kicks[0] /= (1.0 - memory**2) ** 0.5
    return LEVEL + np.array(list(accumulate(kicks, lambda last, kick: memory * last + kick)))


TRAINED = series(noise(LEVEL))


def judge(train: dict[str, np.ndarray], evaluate: dict[str, np.ndarray]) -> tuple[str, ...]:
    """The findings about a run with a Hartree-Fock start."""
    return findings(train, evaluate, estimate(evaluate["energy"]), HARTREE_FOCK)


def test_nothing_is_wrong_with_a_run_that_went_well() -> None:
    """Among a hundred of them, none: a warning that cries wolf is not read."""
    wrong = [judge(series(noise(LEVEL)), series(noise(LEVEL))) for _ in range(100)]
    assert wrong == [()] * 100


def test_a_ruined_state_is_told_in_every_way_that_it_shows() -> None:
    """The case that was once called converged: trained to -1.12, evaluated at -0.74 hartree."""
    found = judge(TRAINED, series(noise(-0.742), variance=1.8))
    assert found[0] == "lies 328 mHa above Hartree-Fock"
    assert found[1].startswith("lies 37")
    assert found[1].endswith(" mHa above the end of its training")
    assert found[2].startswith("its variance, in the median, is 1")
    assert found[2].endswith("times the lowest of its training")
    assert found[3].endswith("hartree² in the median, is more than its energy squared")
    assert len(found) == 4


@pytest.mark.parametrize("above", [0.0, 0.5e-3])
def test_a_small_rise_is_no_finding(above: float) -> None:
    """Walkers lag behind parameters that move, so the end of training may look a little better."""
    assert judge(TRAINED, series(noise(LEVEL + above))) == ()


@pytest.mark.parametrize("n_train", [100, N])
def test_the_end_of_a_training_is_known_no_better_than_its_correlation_allows(n_train: int) -> None:
    """Ten steps that walkers remember all of, σ 5 mHa: their mean is off by more than they show."""
    found = [judge(series(correlated(n_train)), series(correlated(N))) for _ in range(200)]
    assert sum(each != () for each in found) <= 4


def test_a_state_that_training_has_lost_again_is_told() -> None:
    """An explosion of 24 mHa in the middle: the last tenth knows of nothing better."""
    trained = np.concatenate([noise(LEVEL, N // 2), noise(LEVEL + 0.024, N // 2)])
    (found,) = judge(series(trained), series(noise(LEVEL + 0.024)))
    assert re.fullmatch(r"lies 2\d(\.\d)? mHa above steps \d{1,3} to \d{3} of its training", found)


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_best_of_many_stretches_is_low_by_chance_only(memory: float) -> None:
    """The lowest of ten means lies below all of them, and no later energy can be like that."""
    for _ in range(200):
        train, evaluate = correlated(200, memory), correlated(300, memory)
        assert not list(above_best_stretch(train, evaluate, estimate(evaluate)))


def test_training_that_still_falls_is_told() -> None:
    """10 mHa a tenth of the training: more steps would lower the energy."""
    falling = series(noise(LEVEL) + np.linspace(0.1, 0.0, N))
    found = judge(falling, series(noise(LEVEL)))[-1]
    assert found.startswith("its training was still falling, by ")
    assert found.endswith(" mHa over the last tenth")


@pytest.mark.parametrize("outlier", [30.0, -5.0, 1e30])
def test_a_step_that_carries_the_mean_is_named(outlier: float) -> None:
    """Not dropped: it may be true. But the error bar of such a mean knows one sample only."""
    energies = noise(LEVEL)
    energies[293] = outlier
    named = f"step 294 alone, with {outlier:.6g} hartree, carries its mean"
    assert named in judge(TRAINED, series(energies))


@pytest.mark.parametrize("n_train", [0, 19])
def test_a_short_training_excuses_no_energy_above_hartree_fock(n_train: int) -> None:
    """A fit alone lies above it too: true, and no result. Few steps cannot speak for themselves."""
    found = judge(series(noise(LEVEL, n_train)), series(noise(HARTREE_FOCK + 0.1)))
    assert found[0].endswith("above Hartree-Fock")
    assert found[1:] == (("its training of 19 steps is too short to be judged",) if n_train else ())


N_WALKERS = 400  # of which each has a variance of 0.01 hartree², if steps scatter by 5 mHa


@pytest.mark.parametrize(("sigma", "is_stuck"), [(5e-3, False), (2.5e-3, False), (1e-3, True)])
def test_walkers_that_hardly_move_are_told(sigma: float, is_stuck: bool) -> None:
    """The error bar of their mean is tiny, and knows nothing of where they have not been."""
    evaluate = series(noise(LEVEL, sigma=sigma))
    found = findings(TRAINED, evaluate, estimate(evaluate["energy"]), HARTREE_FOCK, N_WALKERS)
    assert [each[:28] for each in found] == (["its walkers hardly move: ene"] if is_stuck else [])


@pytest.mark.parametrize(
    ("age", "said"),
    [(1000.0, ()), (1234.0, ("one of its walkers refused 1234 moves in a row",))],
)
def test_a_walker_that_does_not_leave_is_told(age: float, said: tuple[str, ...]) -> None:
    """Its energy counts in every step, however many there are."""
    ages = np.full(N, 12.0)
    ages[0] = np.nan  # of a release that did not count
    ages[N // 2] = age
    assert judge(TRAINED, series(noise(LEVEL)) | {"max_age": ages}) == said


def test_a_wreck_is_one_without_hartree_fock_too() -> None:
    """An energy of 66 hartree for helium, and a variance of 2.6e5, were once called converged."""
    wreck = series(noise(66.0, sigma=5.0), variance=2.6e5)
    (found,) = findings(series(np.empty(0)), wreck, estimate(wreck["energy"]), None)
    assert found.startswith("its variance, 2.")
    assert found.endswith("e+05 hartree² in the median, is more than its energy squared")


def test_a_training_of_some_tens_of_steps_is_compared_with_its_end() -> None:
    """By ten steps at least, where a tenth of it would be fewer."""
    found = judge(series(noise(LEVEL, 80)), series(noise(LEVEL + 0.04), variance=0.09))
    assert [each.partition(" ")[0] for each in found] == ["lies", "its"]
    falling = series(noise(LEVEL, 80) + np.linspace(0.4, 0.0, 80))
    (fallen,) = judge(falling, series(noise(LEVEL)))
    assert fallen.endswith(" mHa over the last 10 steps")


def test_a_constant_energy_has_no_outliers() -> None:
    """An exact wave function: the robust spread is zero."""
    exact = series(np.full(N, -0.5), variance=0.0)
    assert findings(exact, exact, estimate(exact["energy"]), None) == ()


@pytest.mark.parametrize(("shift", "is_named"), [(0.8e-4, False), (1.2e-4, True)])
def test_a_tenth_of_a_mha_is_not_worth_a_word(shift: float, is_named: bool) -> None:
    """A wave function that is all but exact, and one walker near a node."""
    energies = noise(-0.5, sigma=1e-6)
    energies[293] += N * shift
    exact = series(energies, variance=1e-6)
    said = findings(exact, exact, estimate(energies), None)
    assert any("alone" in one for one in said) == is_named


@pytest.mark.parametrize("name", ["energy", "variance"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_training_with_numbers_that_are_none_is_told(name: str, number: float) -> None:
    """No comparison with them is true: every check would pass."""
    train = {key: values.copy() for key, values in TRAINED.items()}
    train[name][N // 2] = number
    assert judge(train, series(noise(LEVEL))) == ("its training has numbers that are not finite",)


def test_a_variance_below_zero_is_told() -> None:
    assert judge(TRAINED, series(noise(LEVEL), variance=-1.0)) == ("it has a variance below zero",)


@pytest.mark.parametrize(("n_train", "words"), [(1, "1 step is"), (19, "19 steps is")])
def test_a_training_too_short_to_be_judged_is_told(n_train: int, words: str) -> None:
    found = judge(series(noise(LEVEL, n_train)), series(noise(LEVEL)))
    assert found == (f"its training of {words} too short to be judged",)


@pytest.mark.parametrize(
    ("energy", "digits", "words"),
    [
        (1.234e-5, 3, "0.0123 mHa"),
        (0.32812, 3, "328 mHa"),
        (0.0996, 2, "100 mHa"),  # not 1e+02
        (-0.0016, 2, "-1.6 mHa"),
        (56.787, 3, "56.8 hartree"),  # not 56787 mHa
    ],
)
def test_an_energy_in_words_has_a_unit_that_suits_it(energy, digits, words):
    assert in_words(energy, digits) == words
