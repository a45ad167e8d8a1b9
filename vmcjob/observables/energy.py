"""The energy as an observable."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vmcjob.columns import Column
from vmcjob.observables.contracts import Quantity, Series
from vmcjob.stats import estimate

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample


class Energy:
    """The local energy (an `Observable`); measured in every step."""

    columns: Mapping[str, Column] = {"energy": Column("hartree", "energy")}

    def measure(self, sample: "Sample") -> "Observed":
        """The local energy of one walker, in hartree."""
        return {"energy": sample.local.total}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """The energy, in hartree; the series of variances, if given, reveals stuck walkers."""
        found = estimate(series["energy"], variance=series.get("variance"))
        return {"energy": Quantity("hartree", "energy", (), (found,))}
