"""Observables to measure beside the energy, by their names in a spec. JAX is not imported here.

`measure` runs on devices, but uses only operators of the arrays that it gets. So results can be
read on machines without JAX.
"""

from collections.abc import Callable, Iterable, Mapping

from vmcjob.columns import Column
from vmcjob.observables.components import COULOMB, TERMS, Components
from vmcjob.observables.contracts import Observable, Quantity, Series, means
from vmcjob.observables.energy import Energy
from vmcjob.observables.fields import is_control
from vmcjob.observables.histograms import Density, PairDistances
from vmcjob.observables.multipoles import Dipole, Quadrupole, SquaredRadius
from vmcjob.observables.spin import SquaredSpin

MOLECULE: tuple[str, ...] = tuple(COULOMB)
"""The terms of a molecule's Hamiltonian without core potentials."""

TABLE: dict[str, Callable[[tuple[str, ...]], Observable]] = {
    "components": lambda terms: Components({name: TERMS[name] for name in terms}),
    "dipole": lambda terms: Dipole(),
    "quadrupole": lambda terms: Quadrupole(),
    "r2": lambda terms: SquaredRadius(),
    "spin": lambda terms: SquaredSpin(),
    "density": lambda terms: Density(),
    "pairs": lambda terms: PairDistances(),
}
"""Factories of observables, by their names in a spec's `evaluate.observables`.

A factory gets the names of the Hamiltonian's terms.
"""


def make(names: Iterable[str], terms: tuple[str, ...] = MOLECULE) -> tuple[Observable, ...]:
    """The observables with these names, for a Hamiltonian with these terms."""
    return tuple(TABLE[name](terms) for name in names)


def columns_of(names: Iterable[str], terms: tuple[str, ...] = MOLECULE) -> dict[str, Column]:
    """The columns that the observables with these names write."""
    return {name: column for one in make(names, terms) for name, column in one.columns.items()}


def estimate_all(columns: Mapping[str, Column], series: Series) -> dict[str, Quantity]:
    """All quantities that known observables compute from a series, and means of other columns."""
    found: dict[str, Quantity] = {}
    left = dict(columns)
    terms = tuple(name for name in TERMS if name in columns)
    for one in make(TABLE, terms):
        own = {name for name in one.columns if not is_control(name)}
        if own and own <= columns.keys():
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
