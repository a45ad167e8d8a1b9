"""What decides the numbers of a run, and what only decides how and where it is run."""

import dataclasses
import hashlib
import json

from vmcjob.document import KeyPath
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
    }
)


def is_science(path: KeyPath) -> bool:
    """Whether the key at a path, such as ``("sampler", "steps")``, decides the numbers."""
    return path[:1] not in _BESIDE_SCIENCE and path not in _BESIDE_SCIENCE


def science(spec: JobSpec) -> str:
    """Canonical text of what decides the numbers; run ids are made of it, so it must not drift.

    JSON with sorted keys and Python's shortest exact floats: neither the order of fields here nor
    the release of a TOML writer has a say.
    """
    kept = {
        table: {
            key: value
            for key, value in dataclasses.asdict(getattr(spec, table)).items()
            if is_science((table, key))
        }
        for table in (field.name for field in dataclasses.fields(spec))
        if is_science((table,))
    }
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def science_sha256(spec: JobSpec) -> str:
    """Digest of what decides the numbers; runs that share it differ by their seeds only."""
    return hashlib.sha256(science(spec).encode()).hexdigest()
