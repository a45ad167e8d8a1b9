"""Dipole and quadrupole moment, and the size of the electron cloud."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vmcjob.columns import Axis, Column
from vmcjob.observables.contracts import Quantity, Series, estimates_of, means
from vmcjob.observables.fields import Geometry, control_column
from vmcjob.observables.regression import beside, controlled, controlled_elements
from vmcjob.stats import Estimate, estimate_function

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample


class Dipole:
    """Σ_I Z_I R_I − Σ_i r_i, about the origin of coordinates (an `Observable`).

    The dipole moment of an ion depends on the origin.
    """

    columns: Mapping[str, Column] = {
        "dipole": Column("e bohr", "dipole moment about the origin", (Axis("xyz", 3),)),
        **control_column("dipole", (Axis("xyz", 3),), 5),
    }

    def measure(self, sample: "Sample") -> "Observed":
        """Dipole moment of one walker, in e bohr."""
        nuclear = sample.nuclei.charges @ sample.nuclei.positions
        controls = Geometry(sample).along_axes()
        return {"dipole": nuclear - sample.r.sum(axis=0), "dipole_controls": controls}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """The vector and its length, both also with control variates."""
        plain = np.asarray(series["dipole"])
        found = means(self.columns, series)
        found["dipole_length"] = Quantity(
            "e bohr", "length of the dipole moment", (), _length(plain)
        )
        if "dipole_controls" not in series:
            return found
        better = controlled_elements(plain, np.asarray(series["dipole_controls"]))
        more = beside("dipole", found["dipole"], estimates_of, better)
        return found | more | beside("dipole_length", found["dipole_length"], _length, better)


def _length(moments: np.ndarray) -> tuple[Estimate]:
    """√|⟨d⟩|², or 0 if the square is negative, with the error of |⟨d⟩|.

    The jackknife corrects the bias of the square, not of the length. A length has a cusp at zero,
    where its correction may have any size: it made lengths negative by many of their errors.
    """
    length = estimate_function(lambda d: np.linalg.norm(d, axis=-1), moments)
    square = estimate_function(lambda d: (d**2).sum(axis=-1), moments)
    return (replace(length, mean=float(np.sqrt(np.maximum(square.mean, 0.0)))),)


class Quadrupole:
    """Σ q (3 x_a x_b − |x|² δ_ab) / 2 of all charges, about the origin (an `Observable`)."""

    columns: Mapping[str, Column] = {
        "quadrupole": Column(
            "e bohr^2",
            "traceless quadrupole moment about the origin",
            (Axis("xyz", 3), Axis("xyz2", 3)),
        )
    }

    def measure(self, sample: "Sample") -> "Observed":
        """Quadrupole moment of one walker, in e bohr²."""

        def squares(x):
            square = (x**2).sum(axis=-1)[:, None, None] * np.eye(3, dtype=x.dtype)
            return 1.5 * x[:, :, None] * x[:, None, :] - 0.5 * square

        nuclear = sample.nuclei.charges[:, None, None] * squares(sample.nuclei.positions)
        return {"quadrupole": nuclear.sum(axis=0) - squares(sample.r).sum(axis=0)}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """See `Observable`."""
        return means(self.columns, series)


class SquaredRadius:
    """Σ_i r_i², about the origin (an `Observable`)."""

    columns: Mapping[str, Column] = {
        "r2": Column("bohr^2", "sum of the electrons' squared distances from the origin"),
        **control_column("r2", (), 4),
    }

    def measure(self, sample: "Sample") -> "Observed":
        """Sum of squared radii of one walker, in bohr²."""
        return {"r2": (sample.r**2).sum(), "r2_controls": Geometry(sample).scaling()}

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """The mean, also with control variates."""
        found = means(self.columns, series)
        if "r2_controls" not in series:
            return found
        better = controlled(np.asarray(series["r2"]), np.asarray(series["r2_controls"]))
        return found | beside("r2", found["r2"], estimates_of, better)
