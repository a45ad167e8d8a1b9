"""A store as its files lie on the disk, read without Zarr: what it says, and what is missing.

Zarr reads a chunk that is not there as fill values, as if nothing had happened.
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
"""The attribute that says how an evaluation ended that was to reach a target error."""
LEVEL = "level"
"""The one that says how a training ended that was to come to rest."""
CURE = "restore them from a copy, or begin the run anew with vmcjob rerun"


def exists(store: Path) -> bool:
    """Whether there is a store, in a directory or archived, of whatever content."""
    return store.exists() or is_archived(store)


def attributes(store: Path) -> dict[str, Any] | None:
    """What a store says of itself; None where it has no root that can be read."""
    root = _read_metadata(files_of(store), "")
    if root is None:
        return None
    found = root.get("attributes")
    return found if isinstance(found, dict) else {}


def ended_early(attributes: Mapping[str, Any]) -> dict[str, int]:
    """The lengths of series that ended when they had what was asked for; {} of all others."""
    lengths: dict[str, int] = {}
    for series, name, key in (("train", LEVEL, "steps"), ("evaluate", TARGET, "step")):
        found = attributes.get(name)
        length = found.get(key) if isinstance(found, dict) else None
        if isinstance(length, int):
            lengths[series] = length
    return lengths


def arrays_in(store: Path, group: str) -> list[str]:
    """The names of the arrays of a group."""
    files = files_of(store)
    names = sorted(files.names(group))
    return [name for name in names if files.has(f"{group}/{name}/{METADATA}")]


def has_group(store: Path, group: str) -> bool:
    """Whether a store has a group of that name."""
    return files_of(store).has(f"{group}/{METADATA}")


def n_rows(store: Path, name: str) -> int | None:
    """Length of an array of a store; None where its metadata cannot be read."""
    found = _lengths(files_of(store), name)
    return None if found is None else found[0]


def copy_start(store: Path, target: Path) -> None:
    """Copy what a run can begin with: all but the snapshots, which are most of the bytes."""
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
    """What is missing of the committed rows of an array whose rows are never all fill values.

    None if nothing is; else a sentence with what can be done.
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
    """Rows of an array, and of each of its chunks."""
    found = _read_metadata(files, f"{name}/")
    try:
        grid = found["chunk_grid"]["configuration"]["chunk_shape"] if found else []
        return (int(found["shape"][0]), max(1, int(grid[0]))) if found else None
    except (ValueError, TypeError, LookupError):
        return None


def _read_metadata(files: Files, folder: str) -> dict[str, Any] | None:
    """The JSON of a group or an array, whose folder ends with a slash."""
    content = files.read(folder + METADATA)
    try:
        found = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
