"""What runs have observed, pooled element by element."""

import numpy as np
import pytest

from vmcjob.columns import Axis
from vmcjob.observables import Quantity
from vmcjob.results import observed
from vmcjob.stats import Estimate, estimate

RARE = np.where(np.isin(np.arange(200), (20, 90, 150)), 0.04, 0.0)


def pooled(monkeypatch: pytest.MonkeyPatch, *series: np.ndarray) -> Estimate:
    """The row of runs that have measured these."""
    found = iter(series)

    def quantities(path: str) -> dict[str, Quantity]:
        return {"x": Quantity("1", path, (Axis("bin", 1),), (estimate(next(found)),))}

    monkeypatch.setattr(observed, "quantities", quantities)
    row = observed.observe("row", [*map(str, range(len(series)))])  # pyright: ignore[reportArgumentType] -- only handed on
    return row[0].quantity.estimates[0]


def test_a_run_in_which_a_number_never_changed_does_not_know_it_better(monkeypatch) -> None:
    """A bin that electrons reach in one of two runs holds half as many in both."""
    alone = estimate(RARE)
    both = pooled(monkeypatch, np.zeros(200), RARE)
    assert both.mean == pytest.approx(alone.mean / 2.0)
    assert alone.error / 2.0 < both.error < 2.0 * alone.error


def test_a_number_that_never_changes_in_any_run_is_exact(monkeypatch) -> None:
    """As the repulsion of the nuclei of an atom."""
    both = pooled(monkeypatch, np.zeros(200), np.zeros(100))
    assert (both.mean, both.error, both.n, both.converged) == (0.0, 0.0, 300, True)


def test_numbers_that_are_not_finite_in_one_run_are_told(monkeypatch) -> None:
    """Whichever run it is; the others do not stand in for it."""
    bad = np.where(np.arange(200) == 7, np.nan, RARE)
    for series in ((RARE, bad), (bad, RARE)):
        assert pooled(monkeypatch, *series).why == "1 of 200 samples are not finite"
