"""What the energy is made of, and the virial ratio."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vmcjob.columns import Column
from vmcjob.observables.contracts import Quantity, Series, means
from vmcjob.stats import estimate_function

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample

KINETIC = "kinetic"
MOLECULAR: Mapping[str, str] = {
    KINETIC: "kinetic energy",
    "v_ee": "repulsion of electrons",
    "v_en": "attraction of electrons by nuclei",
    "v_nn": "repulsion of nuclei",
}


@dataclass(frozen=True)
class Components:
    """The terms of a Hamiltonian one by one (an `Observable`).

    Its quantities are their means, the potential energy V, which is all but the kinetic energy T,
    and the virial ratio −⟨V⟩/⟨T⟩: 2 for the ground state of an atom, or of a molecule at rest.

    Args:
        terms: names of terms, and what they are in words.
    """

    terms: Mapping[str, str]

    @property
    def columns(self) -> dict[str, Column]:
        """A number for every term."""
        return {name: Column("hartree", words) for name, words in self.terms.items()}

    def measure(self, sample: "Sample") -> "Observed":
        """The terms at one walker."""
        return {name: sample.local.terms[name] for name in self.terms}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """See `Observable`."""
        found = means(self.columns, series)
        potentials = [np.asarray(series[name]) for name in self.terms if name != KINETIC]
        if KINETIC not in self.terms or not potentials:
            return found
        kinetic, potential = np.asarray(series[KINETIC]), np.sum(potentials, axis=0)
        total = estimate_function(lambda v: v, potential)
        virial = estimate_function(lambda v, t: -v / t, potential, kinetic)
        return found | {
            "potential": Quantity("hartree", "potential energy", (), (total,)),
            "virial": Quantity("1", "virial ratio, -V/T", (), (virial,)),
        }
