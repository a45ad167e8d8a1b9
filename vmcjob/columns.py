"""The meaning of an array of a series: its unit, its axes and its name in words.

Also the names of observables, for readers of specs, which have no NumPy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self


@dataclass(frozen=True)
class Axis:
    """An axis of an array, behind the axis of steps."""

    name: str
    length: int
    units: str = "1"
    coordinates: tuple[float, ...] = ()  # of the elements, or of the edges of bins

    def to_json(self) -> dict[str, Any]:
        """The attributes that a store keeps; Zarr itself keeps name and length."""
        return {"units": self.units, "coordinates": list(self.coordinates)}


@dataclass(frozen=True)
class Column:
    """A number, or an array of fixed shape, at each step."""

    units: str
    long_name: str
    axes: tuple[Axis, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array at one step."""
        return tuple(axis.length for axis in self.axes)

    def attributes(self) -> dict[str, Any]:
        """Attributes of the array in a store; JSON."""
        found: dict[str, Any] = {"units": self.units, "long_name": self.long_name}
        if self.axes:
            found["axes"] = {axis.name: axis.to_json() for axis in self.axes}
        return found

    @classmethod
    def from_attributes(
        cls, attributes: Mapping[str, Any], names: tuple[str, ...], shape: tuple[int, ...]
    ) -> Self:
        """The column of an array in a store, whose axes have these names and lengths."""
        known = attributes.get("axes", {})
        axes = tuple(
            Axis(
                name,
                length,
                known.get(name, {}).get("units", "1"),
                tuple(known.get(name, {}).get("coordinates", ())),
            )
            for name, length in zip(names, shape, strict=True)
        )
        return cls(attributes.get("units", "1"), attributes.get("long_name", ""), axes)


class Declared(NamedTuple):
    """An observable as a spec knows it."""

    factory: str  # its class in `vmcjob.observables`
    numbers: Callable[[int], int]  # numbers of one measurement, by the number of nuclei


OBSERVABLES: Final[Mapping[str, Declared]] = {
    "components": Declared("Components", lambda n_nuclei: 8),  # of bare nuclei
    "dipole": Declared("Dipole", lambda n_nuclei: 18),
    "quadrupole": Declared("Quadrupole", lambda n_nuclei: 9),
    "r2": Declared("SquaredRadius", lambda n_nuclei: 5),
    "spin": Declared("SquaredSpin", lambda n_nuclei: 1),
    "density": Declared("Density", lambda n_nuclei: 203),
    "pairs": Declared("PairDistances", lambda n_nuclei: 203),
    "forces": Declared("Forces", lambda n_nuclei: 48 * n_nuclei + 1),
}
"""All observables by their names in a spec's `evaluate.observables`."""
