"""Read a store's files without Zarr: attributes, lengths, and missing rows.

Zarr itself reads a missing chunk as fill values, without an error.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # a JSON document

from vmcjob.store.files import Files, archive_of, files_of, is_archived

METADATA = "zarr.json"
TARGET = "target"
"""Attribute: how an evaluation with a target error ended."""
LEVEL = "level"
"""Attribute: how a training with `until = "level"` ended."""
WALKERS = "walkers_compared"
"""Attribute: how walkers differed over an evaluation."""
CURE = "restore them from a copy, or begin the run anew with vmcjob rerun"


def exists(store: Path) -> bool:
    """Whether there is a store, as directory or archive, even if damaged."""
    return store.exists() or is_archived(store)


def attributes(store: Path) -> dict[str, Any] | None:
    """The root attributes of a store; None if the root cannot be read."""
    root = _read_metadata(files_of(store), "")
    if root is None:
        return None
    found = root.get("attributes")
    return found if isinstance(found, dict) else {}


def ended_early(attributes: Mapping[str, Any]) -> dict[str, int]:
    """The lengths of series that reached their target before the planned end; may be empty."""
    lengths: dict[str, int] = {}
    for series, name, key in (("train", LEVEL, "steps"), ("evaluate", TARGET, "step")):
        found = attributes.get(name)
        length = found.get(key) if isinstance(found, dict) else None
        if isinstance(length, int):
            lengths[series] = length
    return lengths


def arrays_in(store: Path, group: str) -> list[str]:
    """The names of the arrays in a group."""
    files = files_of(store)
    names = sorted(files.names(group))
    return [name for name in names if files.has(f"{group}/{name}/{METADATA}")]


def has_group(store: Path, group: str) -> bool:
    """Whether a store has this group."""
    return files_of(store).has(f"{group}/{METADATA}")


def n_rows(store: Path, name: str) -> int | None:
    """Length of an array of a store; None if its metadata cannot be read."""
    found = _lengths(files_of(store), name)
    return None if found is None else found[0]


def copy_start(store: Path, target: Path) -> None:
    """Copy a store as the start of another run, without snapshots, which are most of the bytes."""
    if is_archived(store):
        from zipfile import ZipFile

        with ZipFile(archive_of(store)) as archive:
            names = archive.namelist()
            archive.extractall(target, [n for n in names if not n.startswith("walkers/r/c/")])
        return

    def snapshots(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "c" and os.path.basename(folder) == "r"]

    shutil.copytree(store, target, ignore=snapshots)


def missing_rows(store: Path, name: str, n_committed: int) -> str | None:
    """The lost rows of an array, in words and with the remedy; None if no row is lost.

    Only for arrays whose committed chunks are never all fill values: Zarr does not write such
    chunks.
    """
    if n_committed == 0:
        return None
    files = files_of(store)
    found = _lengths(files, name)
    if found is None:
        return f"{name} is missing; {CURE}"
    _, chunk = found
    there = files.names(f"{name}/c")
    lost = [i for i in range(-(-n_committed // chunk)) if str(i) not in there]
    if not lost:
        return None
    spans = [f"{i * chunk + 1} to {min((i + 1) * chunk, n_committed)}" for i in lost]
    shown = ", ".join(spans[:3]) + (", …" if spans[3:] else "")
    return f"rows {shown} of {name} are missing ({name}/c/{lost[0]}); {CURE}"


def _lengths(files: Files, name: str) -> tuple[int, int] | None:
    """Number of rows of an array, and of each of its chunks."""
    found = _read_metadata(files, f"{name}/")
    try:
        grid = found["chunk_grid"]["configuration"]["chunk_shape"] if found else []
        return (int(found["shape"][0]), max(1, int(grid[0]))) if found else None
    except (ValueError, TypeError, LookupError):
        return None


def _read_metadata(files: Files, folder: str) -> dict[str, Any] | None:
    """The JSON metadata of a group or array; the name of its folder ends with a slash."""
    content = files.read(folder + METADATA)
    try:
        found = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
