"""The meaning of an array of a series: its unit, its axes and its name in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


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
