"""Provenance of a row: versions, devices and settings of its runs, in a few words."""

from collections.abc import Mapping, Sequence
from typing import Any

Provenance = Mapping[str, Any]  # JSON, as a worker writes it
NAMES = ("vmcjob", "jax", "devices", "dtype", "image_sha256", "host")


def summarize(runs: Sequence[Provenance]) -> dict[str, str | None]:
    """The values of each name over all runs; different values are separated by semicolons."""
    found: dict[str, str | None] = {}
    for name in NAMES:
        values = dict.fromkeys(str(value) for run in runs if (value := _value(run, name)))
        found[name] = "; ".join(values) or None
    return found


def _value(run: Provenance, name: str) -> object:
    versions = run.get("versions")
    versions = versions if isinstance(versions, Mapping) else {}
    return versions.get(name, run.get(name))
