"""The science of a spec: the keys that decide the numbers of a run."""

import dataclasses
import hashlib
import json
from typing import Any

from vmcjob.document import Before, KeyPath, keys_of
from vmcjob.spec.model import JobSpec

_BESIDE_SCIENCE: frozenset[KeyPath] = frozenset(
    {
        ("name",),
        ("seed",),
        ("system", "reference"),
        ("train", "rollbacks"),
        ("output",),
        ("resources",),
        ("container",),
        ("budget",),
        ("retries",),
    }
)


def is_science(path: KeyPath) -> bool:
    """Whether the key at a path, such as ``("sampler", "steps")``, decides the numbers."""
    return path[:1] not in _BESIDE_SCIENCE and path not in _BESIDE_SCIENCE


def science(spec: JobSpec) -> str:
    """Canonical text of all keys that decide the numbers; run ids depend on it.

    It must not change. JSON with sorted keys and Python's shortest exact floats: neither the order
    of fields nor the TOML writer matters. Keys at their `Before` value are left out (see `growth`).
    """
    kept = {
        table: _decisive(table, getattr(spec, table))
        for table in (field.name for field in dataclasses.fields(spec))
        if is_science((table,))
    }
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def science_keys(spec: JobSpec) -> dict[str, int | float | str]:
    """The keys that decide numbers, by names like "optimizer.damping"; lists are left out."""
    return {
        f"{table}.{key}": value
        for table, values in json.loads(science(spec)).items()
        for key, value in values.items()
        if isinstance(value, int | float | str)
    }


def beside_science(spec: JobSpec) -> dict[str, Any]:
    """The keys that may change during a run, by name; `Any` because keys have many types."""
    return {
        f"{table}.{key}": value
        for table, values in dataclasses.asdict(spec).items()
        if isinstance(values, dict)
        for key, value in values.items()
        if not is_science((table, key))
    }


def _decisive(table: str, values: Any) -> dict[str, Any]:
    """The keys of a table that decide numbers; `Any` because tables are different dataclasses."""
    before = {name: key.kind.before for name, key in keys_of(type(values)).items()}
    return {
        name: value
        for name, value in dataclasses.asdict(values).items()
        if is_science((table, name)) and before[name] != Before(value)
    }


def science_sha256(spec: JobSpec) -> str:
    """Digest of the science; runs with equal digests differ by their seeds only."""
    return hashlib.sha256(science(spec).encode()).hexdigest()
