"""Whether the releases of libraries can run a spec, without importing them.

An unsuitable release should be found at submission, not after hours in a queue.
"""

import re
from collections.abc import Mapping
from importlib import metadata
from typing import Final

from vmcjob.spec import JobSpec

Versions = Mapping[str, str]
"""Releases by the name of the package; a package that is missing is not installed."""

PACKAGES: Final = ("jax", "kfac-jax")
LABEL: Final = "vmcjob.version."
"""How the labels of an image begin that name its releases; `containers/selftest` writes them."""
LAST_BEFORE: Final = (0, 0, 8), (0, 11)
"""The newest release of kfac-jax that needs an older JAX, and the first JAX on which it fails."""
REMEDY: Final = "pip install 'jax<0.11' 'jaxlib<0.11' 'kfac-jax>=0.0.8', or choose spring"


def depends_on_releases(spec: JobSpec) -> bool:
    """Whether some releases that vmcjob supports cannot run this spec."""
    return spec.optimizer.kind == "kfac"


def installed() -> Versions:
    """The releases in this process's Python."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def labelled(labels: Mapping[str, str]) -> Versions:
    """The releases in an image, from its labels; empty for an image without such labels."""
    return {
        key.removeprefix(LABEL): value for key, value in labels.items() if key.startswith(LABEL)
    }


def why_not(spec: JobSpec, versions: Versions) -> str | None:
    """The reason why the optimizer of a spec cannot run with these releases; None if it may."""
    if not depends_on_releases(spec) or "jax" not in versions:
        return None
    if "kfac-jax" not in versions:
        return f"optimizer.kind: kfac needs the package kfac-jax; {REMEDY}"
    newest, first = LAST_BEFORE
    if _parts(versions["kfac-jax"]) <= newest and _parts(versions["jax"]) >= first:
        pair = f"kfac-jax {versions['kfac-jax']} does not run on JAX {versions['jax']}"
        return f"optimizer.kind: {pair}; {REMEDY}"
    return None


def _parts(version: str) -> tuple[int, ...]:
    """The numbers of a release: (0, 12, 0, 1) of 0.12.0.1."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
