"""One part of the check, in this process: `python -m tests.gpu.part FUNCTION … --out FILE`."""

import argparse
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.gpu import jobs, measure

FUNCTIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "jobs.energy": jobs.energy,
    "jobs.resume": jobs.resume,
    "jobs.shared": jobs.shared,
    "measure.step": measure.step,
    "measure.account": measure.account,
    "measure.laplacian": measure.laplacian,
}
PACKAGES = "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "kfac-jax", "flax", "folx"


def versions() -> dict[str, str]:
    """Releases of Python and of the installed packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Do the part and write its file, with the card and the versions in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("function", choices=FUNCTIONS)
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    found = FUNCTIONS[options.function](*options.arguments, is_tiny=options.tiny)
    # JAX takes the GPU's memory when it is asked for its devices: jobs have ended by then.
    import jax

    card = jax.devices()[0].device_kind
    document = {"part": options.function, "arguments": options.arguments, "is_tiny": options.tiny}
    document |= {"card": card, "versions": versions(), "found": found}
    path = options.out.with_suffix(".begun")
    path.write_text(json.dumps(document, indent=2) + "\n")
    path.replace(options.out)  # the file is there once it is whole


if __name__ == "__main__":
    main()
