"""The root attributes of a store: created, and checked for origin, integrity and run id."""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zarr

from vmcjob.errors import StoreError
from vmcjob.store.layout import HAS_START, SCHEMA_VERSION, UNITS
from vmcjob.store.peek import CURE


def first_attributes(
    run_id: str, spec_text: str, provenance: Mapping[str, object], ansatz_version: int
) -> dict[str, Any]:  # JSON
    """Root attributes of a new store, in which nothing is committed yet."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "spec": spec_text,
        "spec_sha256": sha256(spec_text),
        "provenance": dict(provenance),
        "units": UNITS,
        "n_committed": {"train": 0, "evaluate": 0, "snapshots": 0},
        "active_slot": None,
        "rollbacks": [],
        "ansatz_version": ansatz_version,
    }


def check_attributes(path: Path, attributes: Mapping[str, Any], run_id: str | None) -> None:
    """StoreError if a store is foreign, of a newer schema, damaged, or of another run."""
    version = attributes.get("schema_version")
    if not isinstance(version, int) or "run_id" not in attributes:
        raise StoreError(f"{path}: a Zarr store, but not written by vmcjob")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: written by a newer vmcjob (schema {version}, this one reads up to "
            f"{SCHEMA_VERSION}); upgrade vmcjob to read it"
        )
    if run_id is not None and attributes["run_id"] != run_id:
        raise StoreError(f"{path}: belongs to run {attributes['run_id']}, not to {run_id}")
    if not _are_intact(attributes):
        raise StoreError(f"{path}: its root attributes are damaged")


def check_start(
    path: Path, root: zarr.Group, attributes: Mapping[str, Any]
) -> dict[str, Any] | None:  # JSON
    """Attributes of the Hartree–Fock start; None without one, StoreError if it is damaged."""
    try:
        group = root.get("hartree_fock")
    except Exception as error:  # damaged bytes can raise any error
        raise StoreError(f"{path}: hartree_fock/zarr.json is damaged; {CURE}") from error
    found = {} if group is None else dict(group.attrs)
    if not found:  # attributes are written last; without them the group is unfinished
        if attributes.get(HAS_START):
            raise StoreError(f"{path}: hartree_fock is missing; {CURE}")
        return None
    energy = found.get("energy")
    if not isinstance(energy, float | int) or not math.isfinite(energy):
        raise StoreError(f"{path}: the energy of hartree_fock is {energy}; {CURE}")
    return found


def _are_intact(attributes: Mapping[str, Any]) -> bool:
    spec, n_committed = attributes.get("spec"), attributes.get("n_committed")
    rollbacks = attributes.get("rollbacks", [])
    return (
        isinstance(spec, str)
        and sha256(spec) == attributes.get("spec_sha256")
        and isinstance(n_committed, dict)
        and set(n_committed) == {"train", "evaluate", "snapshots"}
        and all(type(length) is int and length >= 0 for length in n_committed.values())
        and attributes.get("active_slot", -1) in (None, 0, 1)
        and isinstance(rollbacks, list)
        and all(isinstance(rollback, dict) for rollback in rollbacks)
    )


def sha256(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
