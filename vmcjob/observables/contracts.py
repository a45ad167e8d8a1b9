"""What an observable is, and what its series become."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vmcjob.columns import Axis, Column
from vmcjob.observables.fields import is_control
from vmcjob.stats import Estimate, estimate

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample

Series = Mapping[str, np.ndarray]
"""Columns by name: (step, and the axes that were declared)."""


class Quantity(NamedTuple):
    """A result with its error bars: a number, or an array of numbers."""

    units: str
    long_name: str
    axes: tuple[Axis, ...]
    estimates: tuple[Estimate, ...]  # of all elements, the last axis running fastest

    @property
    def shape(self) -> tuple[int, ...]:
        """Empty for a number."""
        return tuple(axis.length for axis in self.axes)

    def means(self) -> np.ndarray:
        """In the shape of the array."""
        return np.array([one.mean for one in self.estimates]).reshape(self.shape)

    def errors(self) -> np.ndarray:
        """Standard errors in the shape of the array."""
        return np.array([one.error for one in self.estimates]).reshape(self.shape)


@runtime_checkable
class Observable(Protocol):
    """Something to measure in evaluation beside the energy.

    One file with a class, and a line in `TABLE`, make a new one. `measure` runs on devices, for
    one walker, and its mean over walkers and steps is what counts; `estimate` runs where results
    are read, and makes of the means of every step what people want to know.
    """

    @property
    def columns(self) -> Mapping[str, Column]:
        """What it writes: unit, axes and meaning of each array."""
        ...

    def measure(self, sample: "Sample") -> "Observed":
        """Its columns of one walker."""
        ...

    def estimate(self, series: Series) -> Mapping[str, Quantity]:
        """Results by name, from the series of its own columns."""
        ...


def means(columns: Mapping[str, Column], series: Series) -> dict[str, Quantity]:
    """Every column's own mean, element by element; but of controls, which is 0."""
    return {
        name: Quantity(
            column.units, column.long_name, column.axes, estimates_of(np.asarray(series[name]))
        )
        for name, column in columns.items()
        if not is_control(name)
    }


def estimates_of(values: np.ndarray) -> tuple[Estimate, ...]:
    """Of an array with steps along its first axis, the estimates of all elements."""
    return tuple(estimate(one) for one in values.reshape(len(values), -1).T)
