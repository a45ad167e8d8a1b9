"""What the programs of a run take of a device's memory, by XLA's own account; nothing is computed.

    python -m tests.benchmarks.memory n2 benzene --optimizers spring kfac adam

Networks are as wide as in their authors' papers, on one device. Programs are compiled for this
machine's own processor, but with as many walkers at a time as an accelerator would take: what has
to live at one time is the same there; what its kernels need beside is not in the account.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from math import cos, pi, sin
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp

from vmcjob.fwdlap import chunks
from vmcjob.run.calculation import build
from vmcjob.spec import parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.phases import Phase

GIB = 2**30
QUICKLY = {"xla_llvm_disable_expensive_passes": True}  # which come after what is looked at here
SHOWN = Phase.WARMUP, Phase.TRAIN, Phase.EVALUATE
RING = {"C": 2.640, "H": 4.688}  # distances from the middle of benzene, bohr
SYSTEMS = {
    "lih": [("Li", 0.0, 0.0, 0.0), ("H", 0.0, 0.0, 3.015)],
    "n2": [("N", 0.0, 0.0, 0.0), ("N", 0.0, 0.0, 2.068)],
    "benzene": [
        (symbol, r * cos(turn * pi / 3), r * sin(turn * pi / 3), 0.0)
        for symbol, r in RING.items()
        for turn in range(6)
    ],
}
NETWORKS = {
    "ferminet": "layers = 4\none_electron_width = 256\ntwo_electron_width = 32",
    "psiformer": "layers = 4\nheads = 4\nhead_width = 64\nmlp_width = 256\nlayer_norm = true",
}
SPEC = """
name = "size"
[system]
atoms = {atoms}
[ansatz]
kind = "{ansatz}"
determinants = 16
{network}
[optimizer]
kind = "{optimizer}"
[sampler]
walkers = {walkers}
"""


class Account(NamedTuple):
    """Bytes of a device: of the state and what else is given, and of what comes and goes."""

    given: int
    temporary: int

    @property
    def total(self) -> int:
        """The state is given back where it was."""
        return self.given + self.temporary


class Compiling:
    """In the place of a program on all devices: it is compiled, and answers with the result."""

    def __init__(self, fn: Callable[..., Any], donate_argnums: tuple[int, ...] = ()) -> None:
        self._program: Any = jax.pmap(
            fn, axis_name=devices.AXIS, in_axes=(0, None), donate_argnums=donate_argnums
        )

    def __call__(self, sliced: Any, shared: Any) -> tuple[Any, None]:
        """Of these arguments; `jax.stages.Compiled` where a state would be."""
        return self._program.lower(sliced, shared).compile(QUICKLY), None


def accounts(
    system: str, ansatz: str, optimizer: str, n_walkers: int, phases: tuple[Phase, ...]
) -> Iterator[Account]:
    """Of the program of each of some phases."""
    atoms = [list(atom) for atom in SYSTEMS[system]]
    text = SPEC.format(
        atoms=json.dumps(atoms),
        ansatz=ansatz,
        network=NETWORKS[ansatz],
        optimizer=optimizer,
        walkers=n_walkers,
    )
    (point,) = parse_spec(text, "size.toml").points
    calculation = build(point.spec)
    state = calculation.initial_state()
    as_on_a_gpu = patch.object(chunks, "CACHE_BYTES", chunks.DEVICE_BYTES)
    with patch.object(devices, "pmap", Compiling), as_on_a_gpu:
        for phase in phases:
            compiled: Any = calculation.step_of(phase)(state, jnp.asarray(0))[0]
            found = compiled.memory_analysis()
            yield Account(found.argument_size_in_bytes, found.temp_size_in_bytes)


def main() -> None:
    """Print a row for every combination."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="+", choices=SYSTEMS)
    parser.add_argument("--walkers", type=int, default=4096)
    parser.add_argument("--ansatze", nargs="+", default=["ferminet", "psiformer"])
    parser.add_argument("--optimizers", nargs="+", default=["spring", "kfac", "adam"])
    options = parser.parse_args()
    print(f"GiB, {options.walkers} walkers".ljust(40), *(f"{phase:>10}" for phase in SHOWN))
    for case in itertools.product(options.systems, options.ansatze, options.optimizers):
        found = accounts(*case, options.walkers, SHOWN)
        cells = [f"{account.total / GIB:10.2f}" for account in found]
        print(" ".join(case).ljust(40), *cells, flush=True)


if __name__ == "__main__":
    main()
