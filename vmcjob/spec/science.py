"""What decides the numbers of a run, and what only decides how and where it is run."""

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
    """Canonical text of what decides the numbers; run ids are made of it, so it must not drift.

    JSON with sorted keys and Python's shortest exact floats: neither the order of fields here nor
    the release of a TOML writer has a say, nor has a key that makes a run do what it did before
    there was such a key (see `growth`).
    """
    kept = {
        table: _decisive(table, getattr(spec, table))
        for table in (field.name for field in dataclasses.fields(spec))
        if is_science((table,))
    }
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def science_keys(spec: JobSpec) -> dict[str, int | float | str]:
    """The same key by key, as "optimizer.damping", without what is a list."""
    return {
        f"{table}.{key}": value
        for table, values in json.loads(science(spec)).items()
        for key, value in values.items()
        if isinstance(value, int | float | str)
    }


def beside_science(spec: JobSpec) -> dict[str, Any]:
    """Key by key, what may change under a run; `Any`: whatever a key holds."""
    return {
        f"{table}.{key}": value
        for table, values in dataclasses.asdict(spec).items()
        if isinstance(values, dict)
        for key, value in values.items()
        if not is_science((table, key))
    }


def _decisive(table: str, values: Any) -> dict[str, Any]:
    """What of a table decides numbers; `Any`: a dataclass of `JobSpec`, and plain values."""
    before = {name: key.kind.before for name, key in keys_of(type(values)).items()}
    return {
        name: value
        for name, value in dataclasses.asdict(values).items()
        if is_science((table, name)) and before[name] != Before(value)
    }


def science_sha256(spec: JobSpec) -> str:
    """Digest of what decides the numbers; runs that share it differ by their seeds only."""
    return hashlib.sha256(science(spec).encode()).hexdigest()
