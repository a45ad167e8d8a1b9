"""The total spin."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from vmcjob.columns import Column
from vmcjob.observables.contracts import Quantity, Series, means

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample


class SquaredSpin:
    """S² from exchanges of electrons of unlike spins (an `Observable`).

    With n↑ and n↓ electrons, s = (n↑ − n↓) / 2, and P_ij, which exchanges two positions,

        S² = s (s + 1) + n↓ − Σ_{i up, j down} ψ(P_ij r) / ψ(r).

    Costs n↑ n↓ values of ψ for every walker.
    """

    columns: Mapping[str, Column] = {"s2": Column("1", "squared total spin, S(S + 1)")}

    def measure(self, sample: "Sample") -> "Observed":
        """Of one walker. Raises ValueError where electrons of spin up were not counted."""
        if sample.n_up is None:
            raise ValueError("S² needs the number of electrons of spin up: Vmc(..., n_up=...)")
        n_electrons = sample.r.shape[0]
        n_up, n_down = sample.n_up, n_electrons - sample.n_up
        spin = 0.5 * (n_up - n_down)
        pure = spin * (spin + 1.0) + n_down
        if n_up == 0 or n_down == 0:
            return {"s2": sample.r[0, 0] * 0.0 + pure}
        orders = np.tile(np.arange(n_electrons), (n_up * n_down, 1))
        pairs = [(i, j) for i in range(n_up) for j in range(n_up, n_electrons)]
        for order, (i, j) in zip(orders, pairs, strict=True):
            order[[i, j]] = j, i
        return {"s2": pure - sample.ratios(sample.r[orders]).sum()}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """See `Observable`."""
        return means(self.columns, series)
