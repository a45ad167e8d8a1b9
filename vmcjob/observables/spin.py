"""The total spin as an observable."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vmcjob.columns import Column
from vmcjob.observables.contracts import Quantity, Series, means

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample


class SquaredSpin:
    """S² of all walkers (an `Observable`); see `vmc.traits.squared_spin` for the formula."""

    columns: Mapping[str, Column] = {"s2": Column("1", "squared total spin, S(S + 1)")}

    def measure(self, sample: "Sample") -> "Observed":
        """S² of one walker. Raises ValueError if the number of spin-up electrons is not given."""
        from vmcjob.vmc.traits import squared_spin  # where results are read, there may be no JAX

        if sample.n_up is None:
            raise ValueError("S² needs the number of electrons of spin up: Vmc(..., n_up=...)")
        return {"s2": squared_spin(sample.ratios, sample.r, sample.n_up)}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """See `Observable`."""
        return means(self.columns, series)
