"""Facts beside the spec that decide the numbers of a run: releases, devices, precision."""

import os
import platform
import socket
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import jax

from vmcjob.protocol import IMAGE_SHA256
from vmcjob.spec import JobSpec
from vmcjob.store import Checkpoint
from vmcjob.version import __version__
from vmcjob.vmc import ranks

PACKAGES: Final = ("jax", "jaxlib", "flax", "optax", "kfac-jax", "pyscf", "numpy", "zarr")


def provenance(spec: JobSpec, start: Checkpoint | None) -> dict[str, object]:
    """The provenance for the run's store."""
    return {
        "python": platform.python_version(),
        "versions": versions(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "devices": device_names(),
        "image_sha256": os.environ.get(IMAGE_SHA256),
        "start_from": start
        and {"run_id": spec.train.start_from, "phase": start.phase, "step": start.step},
        "dtype": spec.numerics.dtype,
        "matmul_precision": spec.numerics.matmul_precision,
    }


def versions() -> dict[str, str]:
    """Versions of this package and of the installed packages that affect the numbers."""
    installed = {"vmcjob": __version__}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


def device_names() -> str:
    """The devices of this process by kind, and the number of ranks like it."""
    kinds = [device.device_kind for device in jax.local_devices()]
    names = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in sorted(set(kinds)))
    return names if ranks.count() == 1 else f"{ranks.count()} ranks of {names}"
