"""The schema of a run's store: its arrays with their units, shapes and chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from vmcjob.columns import Column

SCHEMA_VERSION = 1

# The two series of a run; other phases are not recorded step by step.
SeriesName = Literal["train", "evaluate"]

# Columns of each series in every new store. `step`, the coordinate of every group, is added.
SERIES: Mapping[SeriesName, Mapping[str, Column]] = {
    "train": {
        "energy": Column("hartree", "mean local energy of the walkers"),
        "variance": Column("hartree^2", "variance of the local energy over the walkers"),
        "acceptance": Column("1", "fraction of accepted moves"),
        "max_age": Column("1", "moves refused in a row, of the walker with the most"),
        "width": Column("bohr", "standard deviation of a proposed move"),
        "grad_norm": Column("hartree", "norm of the energy gradient"),
        "update_norm": Column("1", "norm of the parameter update"),
        "learning_rate": Column("1", "learning rate"),
        "n_clipped": Column("1", "walkers whose local energy was clipped in the gradient"),
        "median": Column("hartree", "median local energy of the walkers"),
        "ess": Column("1", "part of the walkers that still count after the update"),
        "shortening": Column("1", "part of the update that was made"),
        "wall_time": Column("s", "wall time of the run up to this step"),
    },
    "evaluate": {
        "energy": Column("hartree", "mean local energy of the walkers"),
        "variance": Column("hartree^2", "variance of the local energy over the walkers"),
        "acceptance": Column("1", "fraction of accepted moves"),
        "max_age": Column("1", "moves refused in a row, of the walker with the most"),
        "s2": Column("1", "squared total spin, S(S + 1), of some walkers in some steps"),
        "outermost": Column("bohr", "distance of the outermost electron from its nearest nucleus"),
        "wall_time": Column("s", "wall time of the run up to this step"),
    },
}
# Columns that every step has: finite in every committed row. Others may be NaN in all rows of a
# chunk, which has no file in Zarr then.
ALWAYS_FINITE = ("step", "energy", "variance", "acceptance", "wall_time")
UNITS = {"energy": "hartree", "variance": "hartree^2", "length": "bohr", "wall_time": "s"}

# The group of observables, which are measured at every n-th step of evaluation.
OBSERVED = "observe"
EVERY = "every"  # attribute of the group: n

# Limits of chunks per array. 32 metadata files, 22 series of 6 files, 30 observables of 3, 2 sets
# of orbitals, the snapshots and 2 x 16 checkpoint chunks make fewer than 330 files with all
# observables at any length, and fewer than 300 files for most runs.
MAX_SERIES_CHUNKS = 5
MAX_OBSERVED_CHUNKS = 2
MAX_SNAPSHOT_CHUNKS = 40
# Shorter chunks save nothing: a 32 KiB file costs what a small one does.
MIN_SERIES_CHUNK = 4096


@dataclass(frozen=True)
class Layout:
    """The planned size of a run, which fixes the shape of every array in its store."""

    n_train: int
    n_evaluate: int
    n_walkers: int
    n_electrons: int
    n_snapshots: int
    dtype: str = "float32"  # of walkers in snapshots
    more_train: Mapping[str, Column] = field(default_factory=dict)  # the optimizer's own columns
    observed: Mapping[str, Column] = field(default_factory=dict)  # columns of observables
    observe_every: int = 1  # in steps of evaluation

    def columns(self, phase: SeriesName) -> dict[str, Column]:
        """All columns of a series except `step`."""
        return dict(SERIES[phase]) | (dict(self.more_train) if phase == "train" else {})


HAS_START = "has_hartree_fock"
"""Attribute of a store with a Hartree–Fock start; older stores do not have the attribute."""


class HartreeFockRecord(NamedTuple):
    """A Hartree–Fock start: attributes "energy" (hartree), "basis", "method"; orbitals by spin."""

    attributes: Mapping[str, Any]  # JSON
    orbitals: Mapping[str, np.ndarray]  # "up" and "down": ([determinant,] basis function, orbital)


def build(root: zarr.Group, layout: Layout) -> None:
    """Create all groups and arrays in an empty store; the steps are already written."""
    lengths: dict[SeriesName, int] = {"train": layout.n_train, "evaluate": layout.n_evaluate}
    for phase, length in lengths.items():
        root.create_group(phase)
        _build_series(root, phase, np.arange(1, length + 1), layout.columns(phase))
    if layout.observed:
        every = layout.observe_every
        root.create_group(OBSERVED, attributes={EVERY: every})
        steps = np.arange(every, layout.n_evaluate + 1, every)
        _build_series(root, OBSERVED, steps, layout.observed, MAX_OBSERVED_CHUNKS)
    root.create_group("walkers")
    _build_snapshots(root, layout)
    root.create_group("checkpoint")


def build_orbitals(
    root: zarr.Group, attributes: Mapping[str, object], orbitals: Mapping[str, np.ndarray]
) -> None:
    """Create the group of the Hartree–Fock start, or complete one of a killed writer.

    Its arrays never change. Its attributes are written last; without them the group does not count.
    """
    group = root.require_group("hartree_fock")
    for spin, coefficients in orbitals.items():
        array = group.create_array(
            name=spin,
            overwrite=True,
            shape=coefficients.shape,
            chunks=tuple(max(1, length) for length in coefficients.shape),
            dtype="float64",
            fill_value=np.nan,
            compressors=[Crc32cCodec()],
            dimension_names=["determinant", "basis", f"orbital_{spin}"][3 - coefficients.ndim :],
            attributes={
                "units": "1",
                "long_name": f"coefficients of occupied orbitals, spin {spin}",
            },
        )
        array[:] = coefficients
    group.update_attributes(dict(attributes))
    root.update_attributes({HAS_START: True})


def array_at(root: zarr.Group, name: str) -> zarr.Array:
    """The array `name`; KeyError if it does not exist."""
    node = root[name]
    if not isinstance(node, zarr.Array):
        raise KeyError(f"{name} is not an array")
    return node


def _build_series(
    root: zarr.Group,
    group: str,
    steps: np.ndarray,
    columns: Mapping[str, Column],
    max_chunks: int = MAX_SERIES_CHUNKS,
) -> None:
    length = len(steps)
    chunk = _chunk_length(length, max_chunks, at_least=MIN_SERIES_CHUNK)
    step = root.create_array(
        name=f"{group}/step",
        shape=(length,),
        chunks=(chunk,),
        dtype="int64",
        fill_value=0,
        compressors=[Crc32cCodec()],
        dimension_names=["step"],
        attributes={"units": "1", "long_name": f"{group} step, counted from 1"},
    )
    step[:] = steps
    for name, column in columns.items():
        # A chunk of large rows needs no more bytes than a chunk of the other columns.
        rows = -(-MIN_SERIES_CHUNK // max(1, int(np.prod(column.shape))))
        own = _chunk_length(length, max_chunks, at_least=rows) if column.axes else chunk
        root.create_array(
            name=f"{group}/{name}",
            shape=(length, *column.shape),
            chunks=(own, *column.shape),
            dtype="float64",
            fill_value=np.nan,
            # Random digits do not compress; a checksum is worth its four bytes.
            compressors=[Crc32cCodec()],
            dimension_names=["step", *(axis.name for axis in column.axes)],
            attributes=column.attributes(),
        )


def column_of(array: zarr.Array) -> Column:
    """The column of an array, from the array's attributes."""
    names = tuple(str(name) for name in array.metadata.dimension_names or ())[1:]  # pyright: ignore[reportAttributeAccessIssue] -- Zarr 3 has them
    return Column.from_attributes(dict(array.attrs), names, array.shape[1:])


def common_length(group: str, rows: Mapping[str, np.ndarray]) -> int:
    """The common length of all columns of a series; ValueError if they differ."""
    lengths = {len(values) for values in rows.values()}
    if len(lengths) > 1:
        raise ValueError(f"{group} columns have different lengths {sorted(lengths)}")
    return lengths.pop()


def _build_snapshots(root: zarr.Group, layout: Layout) -> None:
    count = layout.n_snapshots
    chunk = _chunk_length(count, MAX_SNAPSHOT_CHUNKS)
    root.create_array(
        name="walkers/step",
        shape=(count,),
        chunks=(max(count, 1),),
        dtype="int64",
        fill_value=0,
        compressors=[Crc32cCodec()],
        dimension_names=["snapshot"],
        attributes={"units": "1", "long_name": "evaluate step of the snapshot, 0: not yet taken"},
    )
    root.create_array(
        name="walkers/r",
        shape=(count, layout.n_walkers, layout.n_electrons, 3),
        chunks=(chunk, layout.n_walkers, layout.n_electrons, 3),
        dtype=layout.dtype,
        fill_value=np.nan,
        compressors=[Crc32cCodec()],
        dimension_names=["snapshot", "walker", "electron", "xyz"],
        attributes={"units": "bohr", "long_name": "electron positions"},
    )


def _chunk_length(length: int, max_chunks: int, at_least: int = 1) -> int:
    return max(1, min(length, max(at_least, -(-length // max_chunks))))
