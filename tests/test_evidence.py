"""Evidence against an energy that its series of means does not hold: trapped walkers."""

import numpy as np
import pytest

from tests.test_stats import ar1
from vmcjob.stats import compare_walkers, estimate
from vmcjob.verdict.evidence import against_walkers, read_walkers

N_STEPS, N_WALKERS = 300, 256


def said_of(e_loc: np.ndarray) -> list[str]:
    """The sentences about an evaluation with these local energies (walker, step), in hartree."""
    away = e_loc - e_loc.mean(axis=0)
    limit = 5.0 * np.abs(away).mean(axis=0)
    sums = away.sum(axis=1), np.clip(away, -limit, limit).sum(axis=1)
    tally = np.stack([np.full(len(e_loc), e_loc.shape[1]), *sums], axis=1)
    found = compare_walkers(tally)
    assert found is not None
    assert read_walkers(found._asdict()) == found
    return list(against_walkers(found, estimate(e_loc.mean(axis=0))))


def energies(rng: np.random.Generator, kind: str = "normal") -> np.ndarray:
    """Right ones around -5.8 hartree, of 100 mHa; each step remembers most of the one before."""
    x = ar1(0.7, N_STEPS, rng, N_WALKERS)
    shaped = {"normal": x, "skewed": np.exp(x), "heavy": x**3}[kind]
    return -5.8 + 0.1 * shaped


@pytest.mark.parametrize("kind", ["normal", "skewed", "heavy"])
def test_walkers_of_one_population_are_not_told_apart(kind: str) -> None:
    """A step near a node, or a few, may not make a walker one of another kind."""
    rng = np.random.default_rng(5)
    assert [said_of(energies(rng, kind)) for _ in range(30)] == [[]] * 30


@pytest.mark.parametrize(("n_trapped", "excess"), [(1, 1.3), (2, 0.4), (2, -1.3)])
def test_walkers_that_are_trapped_are_told_with_their_share(n_trapped: int, excess: float) -> None:
    """One of 256 walkers around two distant helium atoms that stays as He+ and He-."""
    e_loc = energies(np.random.default_rng(6))
    e_loc[:n_trapped] += excess
    (said,) = said_of(e_loc)
    start, shift = said.removesuffix(" mHa").split(" and shift its energy by ")
    assert start == f"{n_trapped} of its 256 walkers stay apart from the others"
    expected = 1e3 * n_trapped * excess / N_WALKERS
    assert float(shift) == pytest.approx(expected, abs=0.35 * n_trapped**0.5)  # 4 of their errors


def test_two_populations_are_told_whichever_is_the_right_one() -> None:
    """Half of the walkers around one state and half around another: none is an exception."""
    e_loc = energies(np.random.default_rng(7))
    e_loc[::2] += 0.2
    (said,) = said_of(e_loc)
    assert said.startswith("its walkers do not mix: by how they differ, its error is ")


@pytest.mark.parametrize(("n_walkers", "n_steps"), [(8, 300), (256, 10)])
def test_few_walkers_or_steps_are_not_compared(n_walkers: int, n_steps: int) -> None:
    """There is nothing that one of them could be apart from, or no mean yet."""
    tally = np.random.default_rng(8).normal(size=(n_walkers, 3))
    tally[:, 0] = n_steps
    assert compare_walkers(tally) is None


@pytest.mark.parametrize("record", [None, 3, {}, {"n": 3}])
def test_a_store_without_the_comparison_is_not_judged_by_it(record: object) -> None:
    """Those of earlier releases have none."""
    assert read_walkers(record) is None
