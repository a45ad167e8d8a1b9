"""The schema of a run's store: which arrays there are, their units, shapes and chunks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

SCHEMA_VERSION = 1

# The two series of a run; what else it does on the way is not recorded step by step.
Phase = Literal["train", "evaluate"]

# What each series is, with its unit; `step` comes on top as the coordinate of every group.
SERIES: Mapping[Phase, Mapping[str, tuple[str, str]]] = {
    "train": {
        "energy": ("hartree", "mean local energy of the walkers"),
        "variance": ("hartree^2", "variance of the local energy over the walkers"),
        "acceptance": ("1", "fraction of accepted moves"),
        "width": ("bohr", "standard deviation of a proposed move"),
        "grad_norm": ("hartree", "norm of the energy gradient"),
        "update_norm": ("1", "norm of the parameter update"),
        "learning_rate": ("1", "learning rate"),
        "n_clipped": ("1", "walkers whose local energy was clipped in the gradient"),
        "median": ("hartree", "median local energy of the walkers"),
        "ess": ("1", "part of the walkers that still count after the update"),
        "shortening": ("1", "part of the update that was made"),
        "wall_time": ("s", "wall time of the run up to this step"),
    },
    "evaluate": {
        "energy": ("hartree", "mean local energy of the walkers"),
        "variance": ("hartree^2", "variance of the local energy over the walkers"),
        "acceptance": ("1", "fraction of accepted moves"),
        "wall_time": ("s", "wall time of the run up to this step"),
    },
}
# Columns that stores of before do not have, and that may be NaN.
LATER = {"median", "ess", "shortening"}
# Columns that no step can be without: finite in every row that was ever committed.
ALWAYS_FINITE = ("step", "energy", "variance", "acceptance", "wall_time")
UNITS = {"energy": "hartree", "variance": "hartree^2", "length": "bohr", "wall_time": "s"}

# 30 metadata files, 18 series, 2 sets of orbitals, the snapshots and 2 x 16 checkpoint chunks:
# below 300 at any length.
MAX_SERIES_CHUNKS = 10
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


def build(root: zarr.Group, layout: Layout) -> None:
    """Create every group and array in an empty store, with the steps already written."""
    lengths: dict[Phase, int] = {"train": layout.n_train, "evaluate": layout.n_evaluate}
    for phase, length in lengths.items():
        root.create_group(phase)
        _build_series(root, phase, length)
    root.create_group("walkers")
    _build_snapshots(root, layout)
    root.create_group("checkpoint")


def build_orbitals(
    root: zarr.Group, attributes: Mapping[str, object], orbitals: Mapping[str, np.ndarray]
) -> None:
    """Create the group of the Hartree–Fock start; its arrays never change."""
    root.create_group("hartree_fock", attributes=dict(attributes))
    for spin, coefficients in orbitals.items():
        array = root.create_array(
            name=f"hartree_fock/{spin}",
            shape=coefficients.shape,
            chunks=tuple(max(1, length) for length in coefficients.shape),
            dtype="float64",
            fill_value=np.nan,
            compressors=[Crc32cCodec()],
            dimension_names=["basis", f"orbital_{spin}"],
            attributes={
                "units": "1",
                "long_name": f"coefficients of occupied orbitals, spin {spin}",
            },
        )
        array[:] = coefficients


def array_at(root: zarr.Group, name: str) -> zarr.Array:
    """The array `name`; a `KeyError` where there is none."""
    node = root[name]
    if not isinstance(node, zarr.Array):
        raise KeyError(f"{name} is not an array")
    return node


def _build_series(root: zarr.Group, phase: Phase, length: int) -> None:
    chunk = _chunk_length(length, MAX_SERIES_CHUNKS, at_least=MIN_SERIES_CHUNK)
    step = root.create_array(
        name=f"{phase}/step",
        shape=(length,),
        chunks=(chunk,),
        dtype="int64",
        fill_value=0,
        compressors=[Crc32cCodec()],
        dimension_names=["step"],
        attributes={"units": "1", "long_name": f"{phase} step, counted from 1"},
    )
    step[:] = np.arange(1, length + 1)
    for name, (units, long_name) in SERIES[phase].items():
        root.create_array(
            name=f"{phase}/{name}",
            shape=(length,),
            chunks=(chunk,),
            dtype="float64",
            fill_value=np.nan,
            # Random digits do not compress; a checksum is worth its four bytes.
            compressors=[Crc32cCodec()],
            dimension_names=["step"],
            attributes={"units": units, "long_name": long_name},
        )


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
