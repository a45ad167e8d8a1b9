"""A store as its files lie on the disk, read without Zarr: what it says, and what is missing.

Zarr reads a chunk that is not there as fill values, as if nothing had happened.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any  # a JSON document

MAX_BYTES = 2**24  # bytes of a file of metadata; ours have a few thousand
CURE = "restore them from a copy, or begin the run anew with vmcjob rerun"


def attributes(store: Path) -> dict[str, Any] | None:
    """What a store says of itself; None where it has no root that can be read."""
    root = _read_metadata(store)
    if root is None:
        return None
    found = root.get("attributes")
    return found if isinstance(found, dict) else {}


def n_rows(store: Path, name: str) -> int | None:
    """Length of an array of a store; None where its metadata cannot be read."""
    found = _lengths(store / name)
    return None if found is None else found[0]


def copy_start(store: Path, target: Path) -> None:
    """Copy what a run can begin with: all but the snapshots, which are most of the bytes."""

    def snapshots(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "c" and os.path.basename(folder) == "r"]

    shutil.copytree(store, target, ignore=snapshots)


def missing_rows(store: Path, name: str, n_committed: int) -> str | None:
    """What is missing of the committed rows of an array whose rows are never all fill values.

    None if nothing is; else a sentence with what can be done.
    """
    if n_committed == 0:
        return None
    found = _lengths(store / name)
    if found is None:
        return f"{name} is missing; {CURE}"
    _, chunk = found
    there = _names(store / name / "c")
    lost = [i for i in range(-(-n_committed // chunk)) if str(i) not in there]
    if not lost:
        return None
    spans = [f"{i * chunk + 1} to {min((i + 1) * chunk, n_committed)}" for i in lost]
    shown = ", ".join(spans[:3]) + (", …" if spans[3:] else "")
    return f"rows {shown} of {name} are missing ({name}/c/{lost[0]}); {CURE}"


def _lengths(array: Path) -> tuple[int, int] | None:
    """Rows of an array, and of each of its chunks."""
    found = _read_metadata(array)
    try:
        grid = found["chunk_grid"]["configuration"]["chunk_shape"] if found else []
        return (int(found["shape"][0]), max(1, int(grid[0]))) if found else None
    except (ValueError, TypeError, LookupError):
        return None


def _read_metadata(node: Path) -> dict[str, Any] | None:
    """The JSON of a group or an array; a file that could make a reader wait is not read."""
    try:
        path = node / "zarr.json"
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()
