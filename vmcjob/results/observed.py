"""Observables of finished runs, pooled over the runs of each row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vmcjob.columns import Axis
from vmcjob.errors import StoreError
from vmcjob.observables import Quantity, estimate_all
from vmcjob.stats import Estimate, pool
from vmcjob.store import RunStore
from vmcjob.store.layout import OBSERVED

MAX_SHOWN = 9
"""Largest number of elements of an array that a printed table shows."""


class Observation(NamedTuple):
    """A quantity of one row of the table of energies."""

    row: str  # name of the row
    name: str
    quantity: Quantity

    def elements(self) -> list[tuple[str, Estimate]]:
        """Name and estimate of each element; a number has one element with the quantity's name."""
        names = [self.name]
        if self.quantity.axes:
            places = np.ndindex(self.quantity.shape)
            names = [f"{self.name}[{','.join(map(str, place))}]" for place in places]
        return list(zip(names, self.quantity.estimates, strict=True))

    def to_json(self) -> dict[str, Any]:
        """A JSON object; arrays become nested lists."""
        return {
            "row": self.row,
            "name": self.name,
            "units": self.quantity.units,
            "long_name": self.quantity.long_name,
            "axes": [{"name": axis.name, **_length_of(axis)} for axis in self.quantity.axes],
            "mean": self.quantity.means().tolist(),
            "error": [_finite(e) for e in self.quantity.errors().ravel().tolist()],
            "n": self.quantity.estimates[0].n,
            "converged": all(one.converged for one in self.quantity.estimates),
        }


def observe(row: str, stores: Sequence[Path]) -> list[Observation]:
    """All quantities of the runs of one row that every run has.

    Raises StoreError if rows of a store are lost.
    """
    found = [quantities(path) for path in stores]
    if not found:
        return []
    shared = [name for name in found[0] if all(name in other for other in found)]
    return [Observation(row, name, _pooled([one[name] for one in found])) for name in shared]


def quantities(store_path: Path) -> Mapping[str, Quantity]:
    """The observables of one run; {} if it measures none or has not begun to."""
    store = RunStore.open(store_path)
    series = store.observed()
    if not series or not len(series["step"]):
        return {}
    try:
        return estimate_all(store.columns(OBSERVED), series)
    except (KeyError, ValueError) as error:
        raise StoreError(f"{store_path}: {OBSERVED} does not fit together: {error}") from error


def _pooled(items: Sequence[Quantity]) -> Quantity:
    if len(items) == 1:
        return items[0]
    elements = zip(*(item.estimates for item in items), strict=True)
    return items[0]._replace(estimates=tuple(_pooled_element(element) for element in elements))


def _pooled_element(element: Sequence[Estimate]) -> Estimate:
    """The common mean of several runs.

    A run without an error bar (too few steps, or numbers that are not finite) cannot be pooled: its
    estimate is returned for all. A number that is constant in one run and varies in another, such
    as a rare bin of a histogram, gets the largest error of the runs.
    """
    for one in element:
        if not np.isfinite([one.mean, one.error]).all():
            return one
    largest = max(one.error for one in element)
    if largest == 0.0 and len({one.mean for one in element}) == 1:
        n = sum(one.n for one in element)
        return replace(element[0], n=n, n_eff=sum(one.n_eff for one in element))
    return pool([one if one.error > 0.0 else replace(one, error=largest) for one in element])


def _length_of(axis: Axis) -> dict[str, Any]:
    return {"length": axis.length, **axis.to_json()}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
