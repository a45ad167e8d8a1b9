"""Observables to measure beside the energy, by their names in a spec. JAX is not imported here.

`measure` runs on devices, but uses only operators of the arrays that it gets. So results can be
read on machines without JAX.
"""

from collections.abc import Callable, Iterable, Mapping

from vmcjob.columns import Column
from vmcjob.observables.components import MOLECULAR, Components
from vmcjob.observables.contracts import Observable, Quantity, Series, means
from vmcjob.observables.energy import Energy
from vmcjob.observables.fields import is_control
from vmcjob.observables.histograms import Density, PairDistances
from vmcjob.observables.multipoles import Dipole, Quadrupole, SquaredRadius
from vmcjob.observables.spin import SquaredSpin

TABLE: dict[str, Callable[[], Observable]] = {
    "components": lambda: Components(MOLECULAR),
    "dipole": Dipole,
    "quadrupole": Quadrupole,
    "r2": SquaredRadius,
    "spin": SquaredSpin,
    "density": Density,
    "pairs": PairDistances,
}
"""Factories of observables, by their names in a spec's `evaluate.observables`."""


def make(names: Iterable[str]) -> tuple[Observable, ...]:
    """The observables with these names."""
    return tuple(TABLE[name]() for name in names)


def columns_of(names: Iterable[str]) -> dict[str, Column]:
    """The columns that the observables with these names write."""
    return {name: column for one in make(names) for name, column in one.columns.items()}


def estimate_all(columns: Mapping[str, Column], series: Series) -> dict[str, Quantity]:
    """All quantities that known observables compute from a series, and means of other columns."""
    found: dict[str, Quantity] = {}
    left = dict(columns)
    for one in make(TABLE):
        if {name for name in one.columns if not is_control(name)} <= columns.keys():
            found |= one.estimate(series)
            left = {name: column for name, column in left.items() if name not in one.columns}
    return found | means(left, series)


__all__ = [
    "TABLE",
    "Components",
    "Density",
    "Dipole",
    "Energy",
    "Observable",
    "PairDistances",
    "Quadrupole",
    "Quantity",
    "SquaredRadius",
    "SquaredSpin",
    "columns_of",
    "estimate_all",
    "make",
    "means",
]
