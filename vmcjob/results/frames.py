"""Labelled tables and arrays for notebooks, in packages that a run does not need.

The extra "notebook" installs these packages: xarray with pandas, and pyarrow for Parquet. A missing
package is reported in one sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vmcjob.columns import Axis, Column
from vmcjob.results.optional import load

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset, DataTree

Cells = Mapping[str, Sequence[Any]]  # columns of a table by name: numbers, strings, None


def to_dataframe(cells: Cells) -> "DataFrame":
    """A table as a data frame with one line per row."""
    return _load("pandas").DataFrame(dict(cells))


def to_dataset(cells: Cells, units: Mapping[str, str], attributes: Mapping[str, Any]) -> Any:
    """A table as an xarray dataset along "row"; the coordinate is the row's name."""
    xarray = _load("xarray")
    variables = {
        name: ("row", _column(values), {"units": units[name]} if name in units else {})
        for name, values in cells.items()
        if name != "name"
    }
    names = np.array([str(name) for name in cells["name"]])
    return xarray.Dataset(variables, {"row": names}, dict(attributes))


def write_parquet(cells: Cells, path: Path) -> None:
    """Write a table to a Parquet file; OSError if this fails."""
    arrow = _load("pyarrow")
    table = arrow.table({name: list(values) for name, values in cells.items()})
    _load("pyarrow.parquet").write_table(table, path)


def write_netcdf(dataset: "Dataset", path: Path) -> None:
    """Write a dataset to a netCDF file with scipy, which is always installed."""
    dataset.to_netcdf(path, engine="scipy")


def to_labelled(
    columns: Mapping[str, Column], arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]
) -> "Dataset":
    """A series as a dataset along "step", with units and long names of its columns.

    An axis has coordinates if its elements have: their own, or the middle of each bin. Edges of
    bins are the attribute `<axis>_edges`. If axes of different lengths have one name, as in some
    old stores, they are named `<column>_<axis>`.
    """
    xarray = _load("xarray")
    variables: dict[str, Any] = {}  # input of xarray
    coordinates: dict[str, Any] = {"step": ("step", arrays["step"], {"long_name": "step"})}
    for name, column in _apart(columns).items():
        about: dict[str, Any] = {"units": column.units, "long_name": column.long_name}
        for axis in column.axes:
            places = np.asarray(axis.coordinates)
            if len(places) not in (0, axis.length):
                about[f"{axis.name}_edges"] = places
            if len(places) == axis.length + 1:
                places = 0.5 * (places[1:] + places[:-1])
            if len(places) == axis.length:
                coordinates.setdefault(axis.name, (axis.name, places, {"units": axis.units}))
        dimensions = ("step", *(axis.name for axis in column.axes))
        variables[name] = (dimensions, arrays[name], about)
    return xarray.Dataset(variables, coordinates, dict(attributes))


def _apart(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns, with unique names for axes of equal name and different lengths."""
    lengths: dict[str, set[int]] = {}
    for column in columns.values():
        for axis in column.axes:
            lengths.setdefault(axis.name, set()).add(axis.length)

    def own(name: str, axis: Axis) -> Axis:
        return replace(axis, name=f"{name}_{axis.name}") if len(lengths[axis.name]) > 1 else axis

    return {
        name: replace(column, axes=tuple(own(name, axis) for axis in column.axes))
        for name, column in columns.items()
    }


def to_walkers(
    steps: np.ndarray, r: np.ndarray, n_up: int, attributes: Mapping[str, Any]
) -> "Dataset":
    """Snapshots of walkers as a dataset; electrons of spin up come first."""
    spins = np.where(np.arange(r.shape[2]) < n_up, "up", "down")
    about = {"units": "bohr", "long_name": "electron positions"}
    coordinates = {
        "step": ("snapshot", steps, {"long_name": "evaluate step of the snapshot"}),
        "spin": ("electron", spins),
        "xyz": ["x", "y", "z"],
    }
    variables = {"r": (("snapshot", "walker", "electron", "xyz"), r, about)}
    return _load("xarray").Dataset(variables, coordinates, dict(attributes))


def to_tree(groups: Mapping[str, "Dataset"]) -> "DataTree":
    """Several datasets under one root."""
    return _load("xarray").DataTree.from_dict(dict(groups))


def _column(values: Sequence[Any]) -> np.ndarray:
    """A column as an array: missing values are NaN in numbers and empty in strings."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool | int) for value in values):
        return np.array(values)
    if all(isinstance(value, int | float) for value in known):
        return np.array([np.nan if value is None else value for value in values], float)
    return np.array(["" if value is None else str(value) for value in values])


def _load(name: str) -> Any:  # a module
    return load(name, "notebook")
