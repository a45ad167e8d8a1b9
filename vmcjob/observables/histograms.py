"""Histograms of the electron density, and of distances between electrons."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vmcjob.columns import Axis, Column
from vmcjob.observables.contracts import Quantity, Series, estimates_of, means

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Observed, Sample

N_BINS = 100
RADIUS_BOHR = 10.0  # of radial histograms
HALF_LENGTH_BOHR = 10.0  # of histograms along z


@dataclass(frozen=True)
class Bins:
    """Intervals of a length; the outermost bins extend to infinity, so that all is counted."""

    name: str
    edges: tuple[float, ...]  # bohr, between bins

    def axis(self) -> Axis:
        """The axis of the bins, with their edges as coordinates."""
        return Axis(self.name, len(self.edges) + 1, "bohr", self.edges)

    def count(self, x: Any) -> Any:
        """Number of values in each bin, as an array of JAX."""
        x = x.reshape(-1, 1)
        low = np.array((-np.inf, *self.edges), x.dtype)
        high = np.array((*self.edges, np.inf), x.dtype)
        return ((x >= low) & (x < high)).sum(axis=0) * 1.0


def _radial(name: str) -> Bins:
    return Bins(name, tuple(np.linspace(0.0, RADIUS_BOHR, N_BINS + 1)[1:].tolist()))


def _axial(name: str) -> Bins:
    return Bins(name, tuple(np.linspace(-HALF_LENGTH_BOHR, HALF_LENGTH_BOHR, N_BINS + 1).tolist()))


class Density:
    """The electron density by distance from the origin, and along z (an `Observable`).

    Both count electrons in bins, so their sum is the number of electrons. The radial one is also
    given as a density, for bins with a finite volume.
    """

    radial, axial = _radial("radius"), _axial("z")
    columns: Mapping[str, Column] = {
        "density_radial": Column("1", "electrons by distance from the origin", (radial.axis(),)),
        "density_axial": Column("1", "electrons by z", (axial.axis(),)),
    }

    def measure(self, sample: "Sample") -> "Observed":
        """Counts of one walker."""
        return {
            "density_radial": self.radial.count((sample.r**2).sum(axis=-1) ** 0.5),
            "density_axial": self.axial.count(sample.r[:, 2]),
        }

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """The counts, and the radial density in bohr^-3."""
        return means(self.columns, series) | {
            "density": _per_volume(
                self.radial, series["density_radial"], "electron density, spherical mean"
            )
        }


class PairDistances:
    """Pairs of electrons by distance, and by difference along z (an `Observable`)."""

    radial, axial = _radial("distance"), _axial("dz")
    columns: Mapping[str, Column] = {
        "pairs_radial": Column("1", "pairs of electrons by distance", (radial.axis(),)),
        "pairs_axial": Column("1", "pairs of electrons by difference of z", (axial.axis(),)),
    }

    def measure(self, sample: "Sample") -> "Observed":
        """Counts of one walker; each pair counts half for either sign of its difference along z."""
        i, j = np.triu_indices(sample.r.shape[0], k=1)
        apart = sample.r[i] - sample.r[j]
        z = apart[:, 2]
        return {
            "pairs_radial": self.radial.count((apart**2).sum(axis=-1) ** 0.5),
            "pairs_axial": 0.5 * (self.axial.count(z) + self.axial.count(-z)),
        }

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """The counts, and the radial density of pairs in bohr^-3."""
        return means(self.columns, series) | {
            "pair_density": _per_volume(
                self.radial, series["pairs_radial"], "density of pairs, spherical mean"
            )
        }


def _per_volume(bins: Bins, counts: np.ndarray, long_name: str) -> Quantity:
    """Density in bohr^-3 of all bins but the last, which is infinite."""
    edges = np.array((0.0, *bins.edges))
    volumes = 4.0 / 3.0 * np.pi * np.diff(edges**3)
    axis = Axis(bins.name, len(volumes), "bohr", bins.edges)
    values = np.asarray(counts)[:, :-1] / volumes
    return Quantity("bohr^-3", long_name, (axis,), estimates_of(values))
