"""The components of the energy, and the virial ratio."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vmcjob.columns import Column
from vmcjob.observables.contracts import Quantity, Series, Subject, estimates_of, means
from vmcjob.observables.fields import Geometry, control_column
from vmcjob.observables.regression import beside, controlled
from vmcjob.stats import Estimate, estimate_function

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample

KINETIC = "kinetic"
COMPONENTS = "components"
CONTROLS = "components_controls"
COULOMB: Mapping[str, str] = {
    KINETIC: "kinetic energy",
    "v_ee": "repulsion of electrons",
    "v_en": "attraction of electrons by nuclei",
    "v_nn": "repulsion of nuclei",
}
POTENTIALS: Mapping[str, str] = {
    "ecp_local": "local part of core potentials, with the attraction by these nuclei",
    "ecp_nonlocal": "non-local part of core potentials",
}
TERMS: Mapping[str, str] = {**COULOMB, **POTENTIALS}
"""All terms of Hamiltonians by name, with their meaning in words."""


@dataclass(frozen=True)
class Components:
    """The terms of a Hamiltonian, one by one (an `Observable`).

    Quantities: the mean of each term, the potential energy V (all terms but the kinetic energy T),
    and the virial ratio −⟨V⟩/⟨T⟩. The ratio is 2 for the ground state of an atom, and of a molecule
    at its equilibrium geometry. There is no ratio if a core has a potential, as that is not 1/r.

    Args:
        terms: names of terms, with their meaning in words.
    """

    terms: Mapping[str, str]

    @classmethod
    def of(cls, subject: Subject) -> "Components":
        """The terms of a system's Hamiltonian."""
        return cls({name: TERMS[name] for name in subject.terms})

    @property
    def columns(self) -> dict[str, Column]:
        """A number for each term, and control variates for all of them."""
        terms = {name: Column("hartree", words) for name, words in self.terms.items()}
        return terms | control_column(COMPONENTS, (), 4)

    def measure(self, sample: "Sample") -> "Observed":
        """The terms of one walker."""
        terms = {name: sample.local.terms[name] for name in self.terms}
        return terms | {CONTROLS: Geometry(sample).singular()}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """See `Observable`."""
        plain = {name: np.asarray(series[name]) for name in self.terms}
        found = means(self.columns, series)
        potentials = [values for name, values in plain.items() if name != KINETIC]
        if KINETIC in plain and potentials:
            plain["potential"] = np.sum(potentials, axis=0)
            whole = estimates_of(plain["potential"])
            found["potential"] = Quantity("hartree", "potential energy", (), whole)
            if POTENTIALS.keys().isdisjoint(plain):
                ratio = _virial(plain["potential"], plain[KINETIC])
                found["virial"] = Quantity("1", "virial ratio, -V/T", (), ratio)
        if CONTROLS not in series:
            return found
        controls = np.asarray(series[CONTROLS])
        better = {name: controlled(values, controls) for name, values in plain.items()}
        for name, values in better.items():
            found |= beside(name, found[name], estimates_of, values)
        if "virial" in found:
            given = better["potential"], better[KINETIC]
            found |= beside("virial", found["virial"], _virial, *given)
        return found


def _virial(potential: np.ndarray, kinetic: np.ndarray) -> tuple[Estimate]:
    return (estimate_function(lambda v, t: -v / t, potential, kinetic),)
