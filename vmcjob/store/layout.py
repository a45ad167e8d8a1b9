"""The schema of a run's store: which arrays there are, their units, shapes and chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from vmcjob.columns import Column

SCHEMA_VERSION = 1

# The two series of a run; what else it does on the way is not recorded step by step.
Phase = Literal["train", "evaluate"]

# What every new store has of each series; `step` comes on top as the coordinate of every group.
SERIES: Mapping[Phase, Mapping[str, Column]] = {
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
# Columns that no step can be without: finite in every row that was ever committed.
ALWAYS_FINITE = ("step", "energy", "variance", "acceptance", "wall_time")
UNITS = {"energy": "hartree", "variance": "hartree^2", "length": "bohr", "wall_time": "s"}

# The group of what is measured now and then in evaluation; its rows are those of every n-th step.
OBSERVED = "observe"
EVERY = "every"  # its attribute: n

# 32 metadata files, 22 series of 6 files, 30 observables of 3, 2 sets of orbitals, the snapshots
# and 2 x 16 checkpoint chunks: below 330 for all observables at any length, below 300 for most.
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
    dtype: str = "float32"  # of the walkers in snapshots
    more_train: Mapping[str, Column] = field(default_factory=dict)  # what an optimizer tells
    observed: Mapping[str, Column] = field(default_factory=dict)  # what is measured now and then
    observe_every: int = 1  # in steps of evaluation

    def columns(self, phase: Phase) -> dict[str, Column]:
        """All of a series but its steps."""
        return dict(SERIES[phase]) | (dict(self.more_train) if phase == "train" else {})


HAS_START = "has_hartree_fock"
"""The attribute of a store that has a Hartree–Fock start; older ones do not have it."""


class HartreeFockRecord(NamedTuple):
    """Where a run started: "energy" in hartree, "basis" and "method"; coefficients by spin."""

    attributes: Mapping[str, Any]  # JSON
    orbitals: Mapping[str, np.ndarray]  # "up" and "down": ([determinant,] basis function, orbital)


def build(root: zarr.Group, layout: Layout) -> None:
    """Create every group and array in an empty store, with the steps already written."""
    lengths: dict[Phase, int] = {"train": layout.n_train, "evaluate": layout.n_evaluate}
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
    """Create the group of the Hartree–Fock start, or what a dead writer left out of it.

    Its arrays never change. Its attributes are the last that it gets: before, it does not count.
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
    """The array `name`; a `KeyError` where there is none."""
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
        # Large rows need no more than the others' bytes to fill a chunk.
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
    """What an array of a series is, by what it says of itself."""
    names = tuple(str(name) for name in array.metadata.dimension_names or ())[1:]  # pyright: ignore[reportAttributeAccessIssue] -- Zarr 3 has them
    return Column.from_attributes(dict(array.attrs), names, array.shape[1:])


def common_length(group: str, rows: Mapping[str, np.ndarray]) -> int:
    """Of all columns of some rows of a series; ValueError if they differ."""
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
