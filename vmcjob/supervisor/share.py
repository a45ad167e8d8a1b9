"""The part of a node's devices that one of several runs gets, which have a job together."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

DEVICES = "CUDA_VISIBLE_DEVICES"
MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
DEFAULT_MEMORY = 0.75
"""What JAX takes of a GPU that it has to itself; the rest is for what each process needs beside."""


@dataclass(frozen=True)
class Share:
    """A place among so many runs that share a job."""

    place: int
    count: int

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of the run's worker: its GPUs alone, and of a shared one its memory.

        JAX would take three quarters of every GPU that it sees, and its neighbours would find
        nothing left.
        """
        gpus = [gpu for gpu in environ.get(DEVICES, "").split(",") if gpu]
        if not gpus:
            return dict(environ)
        n_neighbours = math.ceil(self.count / len(gpus))
        found = dict(environ) | {DEVICES: ",".join(self.part(gpus))}
        if n_neighbours > 1:
            whole = _fraction(environ.get(MEMORY))
            found[MEMORY] = f"{whole / n_neighbours:.4f}"
        return found

    def part(self, items: Sequence[str]) -> Sequence[str]:
        """An equal part of the items; of fewer items than runs, the one that is shared."""
        if len(items) < self.count:
            return [items[self.place * len(items) // self.count]]
        size = len(items) // self.count
        return items[self.place * size : (self.place + 1) * size]

    def take_cpus(self) -> None:
        """Keep this thread, and what it starts, to an equal part of the CPUs that we may use.

        Every JAX would start as many threads as there are CPUs. Where there are fewer CPUs than
        runs, or the system knows no such thing, they share them as they come.
        """
        with suppress(AttributeError, OSError):
            cpus = sorted(map(str, os.sched_getaffinity(0)), key=int)
            if len(cpus) >= self.count:
                os.sched_setaffinity(0, map(int, self.part(cpus)))


def _fraction(text: str | None) -> float:
    """What the user has set for a whole GPU, else what JAX takes by itself."""
    with suppress(ValueError):
        return float(text or DEFAULT_MEMORY)
    return DEFAULT_MEMORY
