"""Observables to measure beside the energy, by their names in a spec. JAX is not imported here.

`measure` runs on devices, but uses only operators of the arrays that it gets. So results can be
read on machines without JAX.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from vmcjob.columns import OBSERVABLES, Column
from vmcjob.observables.components import TERMS, Components
from vmcjob.observables.contracts import Observable, Quantity, Series, Subject, means
from vmcjob.observables.energy import Energy
from vmcjob.observables.fields import is_control
from vmcjob.observables.forces import NUCLEI, Forces
from vmcjob.observables.histograms import Density, PairDistances
from vmcjob.observables.multipoles import Dipole, Quadrupole, SquaredRadius
from vmcjob.observables.spin import SquaredSpin

TABLE: Final[Mapping[str, Callable[..., Any]]] = {
    name: globals()[declared.factory] for name, declared in OBSERVABLES.items()
}
"""Classes of observables, by their names in a spec."""
BARE_ATOM: Final = Subject()


def make(names: Iterable[str], subject: Subject = BARE_ATOM) -> tuple[Observable, ...]:
    """The observables with these names, of a system."""
    factories = (TABLE[name] for name in names)
    return tuple(one.of(subject) if hasattr(one, "of") else one() for one in factories)


def columns_of(names: Iterable[str], subject: Subject = BARE_ATOM) -> dict[str, Column]:
    """The columns that the observables with these names write."""
    return {name: column for one in make(names, subject) for name, column in one.columns.items()}


def estimate_all(columns: Mapping[str, Column], series: Series) -> dict[str, Quantity]:
    """All quantities that known observables compute from a series, and means of other columns."""
    found: dict[str, Quantity] = {}
    left = dict(columns)
    for one in make(TABLE, _subject(columns)):
        own = {name for name in one.columns if not is_control(name)}
        if own and own <= columns.keys():
            found |= one.estimate(series)
            left = {name: column for name, column in left.items() if name not in one.columns}
    return found | means(left, series)


def _subject(columns: Mapping[str, Column]) -> Subject:
    """The system behind a store's columns, as far as observables depend on the system."""
    terms = tuple(name for name in TERMS if name in columns)
    n_nuclei = columns[NUCLEI].shape[0] if NUCLEI in columns else 1
    return Subject(terms, n_nuclei)


__all__ = [
    "TABLE",
    "Components",
    "Density",
    "Dipole",
    "Energy",
    "Forces",
    "Observable",
    "PairDistances",
    "Quadrupole",
    "Quantity",
    "SquaredRadius",
    "SquaredSpin",
    "Subject",
    "columns_of",
    "estimate_all",
    "make",
    "means",
]
