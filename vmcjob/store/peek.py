"""A store as its files lie on the disk, read without Zarr: its lengths, and what is missing.

Zarr reads a chunk that is not there as fill values, as if nothing had happened.
"""

import json
import os
from pathlib import Path

LARGEST = 2**24  # bytes of a file of metadata; ours have a few thousand
CURE = "restore them from a copy, or begin the run anew with vmcjob rerun"


def n_rows(store: Path, name: str) -> int | None:
    """Length of an array of a store; None where its metadata cannot be read."""
    found = _lengths(store / name)
    return None if found is None else found[0]


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
    path = array / "zarr.json"
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        found = json.loads(path.read_bytes())
        grid = found["chunk_grid"]["configuration"]["chunk_shape"]
        return int(found["shape"][0]), max(1, int(grid[0]))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()
