"""What an array of a series means: its unit, its axes and its name in words, wherever it goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Axis:
    """An axis of an array behind that of the steps."""

    name: str
    length: int
    units: str = "1"
    coordinates: tuple[float, ...] = ()  # of its elements, or of the edges of its bins

    def to_json(self) -> dict[str, Any]:
        """What a store keeps beside the name and the length, which Zarr keeps itself."""
        return {"units": self.units, "coordinates": list(self.coordinates)}


@dataclass(frozen=True)
class Column:
    """At every step a number, or an array of always the same shape."""

    units: str
    long_name: str
    axes: tuple[Axis, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array at one step."""
        return tuple(axis.length for axis in self.axes)

    def attributes(self) -> dict[str, Any]:
        """As a store keeps them with the array; JSON."""
        found: dict[str, Any] = {"units": self.units, "long_name": self.long_name}
        if self.axes:
            found["axes"] = {axis.name: axis.to_json() for axis in self.axes}
        return found

    @classmethod
    def from_attributes(
        cls, attributes: Mapping[str, Any], names: tuple[str, ...], shape: tuple[int, ...]
    ) -> Self:
        """Of an array in a store, whose axes have these names and lengths."""
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
