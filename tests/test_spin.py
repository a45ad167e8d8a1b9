"""What the S² of an evaluation says of its state."""

import numpy as np
import pytest

from vmcjob.verdict.spin import NOT_MEASURED, Spin, judge_spin, pool_spins

RNG = np.random.default_rng(3)


def measured(mean: float, spread: float, n: int = 100) -> np.ndarray:
    """S² in every tenth of so many steps, NaN in the others."""
    rows = np.full(10 * n, np.nan)
    rows[9::10] = RNG.normal(mean, spread, n)
    return rows


@pytest.mark.parametrize(
    ("mean", "spins", "looks_like"),
    [
        (0.82, (1, 1), "a mixture of a singlet and a triplet"),  # H2 at 4 bohr, broken
        (1.22, (2, 2), "a mixture of a singlet and a triplet"),  # the H4 square
        (1.99, (1, 1), "a triplet"),
        (2.8, (7, 7), "a mixture of a triplet and a quintet"),  # N2 at 4 bohr
        (1.5, (2, 1), "a mixture of a doublet and a quartet"),
        (3.75, (2, 1), "a quartet"),
        (-0.3, (1, 1), "no state that has a spin"),
    ],
)
def test_a_wrong_spin_is_named(mean: float, spins: tuple[int, int], looks_like: str) -> None:
    found = judge_spin(measured(mean, 0.1), spins)
    assert found.finding.endswith(f": it looks like {looks_like}")
    assert found.square == pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize(
    ("mean", "spread", "spins"),
    [(0.0, 1e-4, (1, 1)), (0.013, 1e-3, (1, 1)), (0.2, 1.0, (7, 7)), (3.75, 0.1, (5, 2))],
)
def test_a_right_spin_is_no_finding(mean: float, spread: float, spins: tuple[int, int]) -> None:
    """Within 0.03, or within three errors of it. Mutant in mind: only one of both limits."""
    found = judge_spin(measured(mean, spread), spins)
    assert found.finding == ""


def test_a_spin_that_is_hardly_known_is_a_doubt() -> None:
    """Ten rows of S² that scatter by two tell nothing about a singlet."""
    found = judge_spin(measured(0.0, 2.0, n=10), (7, 7))
    assert found.finding == ""
    assert found.doubt.startswith("its S² is known only within ")


@pytest.mark.parametrize(("spins", "exact"), [((1, 0), 0.75), ((2, 0), 2.0), ((0, 3), 3.75)])
def test_electrons_all_of_one_spin_need_no_measurement(
    spins: tuple[int, int], exact: float
) -> None:
    assert judge_spin(None, spins)[:3] == (exact, 0.0, exact)


@pytest.mark.parametrize("rows", [None, np.full(30, np.nan), measured(0.0, 1.0, n=1)])
def test_a_spin_that_was_not_measured_is_called_so(rows: np.ndarray | None) -> None:
    """Stores of before have no column; short evaluations have no error bar of it."""
    found = judge_spin(rows, (1, 1))
    assert (found.square, found.finding, found.doubt) == (None, "", NOT_MEASURED)


def test_seeds_have_the_spin_that_all_of_them_know() -> None:
    known = [judge_spin(measured(0.0, 0.1), (1, 1)) for _ in range(4)]
    pooled = pool_spins(known)
    assert pooled.error == pytest.approx(0.5 * (known[0].error or 0.0), rel=0.3)
    assert pool_spins([*known, judge_spin(None, (1, 1))]).square is None


@pytest.mark.parametrize("two_s", [0, 1, 2, 5])
def test_a_pooled_spin_is_judged_by_the_spin_that_was_asked_for(two_s: int) -> None:
    """Catches a mean that is compared with a singlet's, whatever the electrons are."""
    expected = 0.25 * two_s * (two_s + 2)
    for off, is_found in ((0.0, False), (0.1, True)):
        pooled = pool_spins([Spin(expected + off, 0.05, expected)] * 16)
        assert bool(pooled.finding) == is_found
        assert pooled.expected == expected
