"""The contract of an observable, and its result."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vmcjob.columns import Axis, Column
from vmcjob.observables.fields import is_control
from vmcjob.stats import Estimate, estimate

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample

Series = Mapping[str, np.ndarray]
"""Columns by name, with axes (step, declared axes of the column)."""

COULOMB_TERMS: Final = ("kinetic", "v_ee", "v_en", "v_nn")


class Subject(NamedTuple):
    """The facts about a system that observables are made from."""

    terms: tuple[str, ...] = COULOMB_TERMS  # names of the Hamiltonian's terms
    n_nuclei: int = 1


class Quantity(NamedTuple):
    """A result with error bars: a number or an array of numbers."""

    units: str
    long_name: str
    axes: tuple[Axis, ...]
    estimates: tuple[Estimate, ...]  # of all elements; the last axis runs fastest

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array; empty for a number."""
        return tuple(axis.length for axis in self.axes)

    def means(self) -> np.ndarray:
        """Means, in the shape of the array."""
        return np.array([one.mean for one in self.estimates]).reshape(self.shape)

    def errors(self) -> np.ndarray:
        """Standard errors, in the shape of the array."""
        return np.array([one.error for one in self.estimates]).reshape(self.shape)


@runtime_checkable
class Observable(Protocol):
    """A quantity to measure in evaluation beside the energy.

    A new observable is one file with a class, an import in `vmcjob.observables`, and one line in
    `columns.OBSERVABLES`. A class that depends on the system has a method `of(subject)`. `measure`
    runs on devices for one walker; its mean over walkers is recorded. `estimate` runs where results
    are read, and turns the means of all steps into results.
    """

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns that it writes: unit, axes and meaning of each array."""
        ...

    def measure(self, sample: "Sample") -> "Observed":
        """Values of its columns for one walker."""
        ...

    def estimate(self, series: Series) -> Mapping[str, Quantity]:
        """Results by name, computed from the series of its columns."""
        ...


def means(columns: Mapping[str, Column], series: Series) -> dict[str, Quantity]:
    """The mean of each column, element by element; without controls, whose mean is 0."""
    return {
        name: Quantity(
            column.units, column.long_name, column.axes, estimates_of(np.asarray(series[name]))
        )
        for name, column in columns.items()
        if not is_control(name)
    }


def estimates_of(values: np.ndarray) -> tuple[Estimate, ...]:
    """Estimates of all elements of an array with steps along its first axis."""
    return tuple(estimate(one) for one in values.reshape(len(values), -1).T)
