"""Measure the steps of a run on this machine, for `vmcjob estimate`: seconds and memory.

A process of its own measures, so that a limit of time can end a compilation, too:

    python -m vmcjob.run.calibration SECONDS < spec.toml

It prints one JSON object per line, each as soon as it is known: `Machine`, then a `Measured` for
each phase.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmcjob.errors import UsageError, VmcJobError
from vmcjob.run import programs, startup
from vmcjob.run.ending import is_out_of_memory
from vmcjob.spec import JobSpec, load_resolved

if TYPE_CHECKING:  # JAX is imported late
    from vmcjob.vmc.phases import Phase

MAX_STEPS = 50  # of each phase; more would tell no more
SHARE = 0.15  # of the limit, for the timed steps of one phase


@dataclass(frozen=True)
class Machine:
    """The devices that compute, and the memory that they have."""

    devices: str
    n_devices: int
    memory_bytes: int  # of all devices together; of this machine, if they are CPUs
    is_gpu: bool


@dataclass(frozen=True)
class Measured:
    """One phase: the seconds of a step, and of its compilation; the memory of its program."""

    phase: str
    step_s: float
    n_steps: int  # that were timed
    compile_s: float
    program_bytes: int | None  # on one device: arguments, results and temporary arrays
    peak_bytes: int  # host memory of the process so far


def main(limit_s: float) -> int:
    """Measure the spec on standard input; returns the exit code."""
    try:
        for found in _measure(load_resolved(sys.stdin.read(), "the spec"), limit_s):
            sys.stdout.write(json.dumps({"kind": type(found).__name__} | asdict(found)) + "\n")
            sys.stdout.flush()
    except VmcJobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        sys.stderr.write("one step needs more memory than this machine has; take fewer walkers\n")
        return UsageError.exit_code
    return 0


def _measure(spec: JobSpec, limit_s: float) -> Iterator[Machine | Measured]:
    programs.keep_programs()
    startup.import_jax(spec)
    found = startup.find_devices()
    from vmcjob.run.calculation import build, configure_jax
    from vmcjob.run.progress import steps_of
    from vmcjob.run.surroundings import device_names
    from vmcjob.vmc.phases import Phase

    configure_jax(spec.numerics)
    is_gpu = found[0].platform == "gpu"
    memory = sum(map(_memory_of, found)) if is_gpu else _memory_here()
    yield Machine(device_names(), len(found), memory, is_gpu)
    calculation, planned = build(spec), steps_of(spec)
    state: Any = calculation.initial_state()
    is_needed = {
        Phase.WARMUP: True,  # its moves spread the walkers
        Phase.TRAIN: planned[Phase.TRAIN] or planned[Phase.PRETRAIN],  # which counts as training
        # Else its steps are moves, too.
        Phase.EQUILIBRATE: calculation.vmc.observing.responding and planned[Phase.EQUILIBRATE],
        Phase.EVALUATE: planned[Phase.EVALUATE],
    }
    for phase, is_measured in is_needed.items():
        if is_measured:
            state, measured = _time_phase(calculation, phase, state, SHARE * limit_s)
            yield measured


def _time_phase(
    calculation: Any, phase: "Phase", state: Any, limit_s: float
) -> tuple[Any, Measured]:
    """The state after some steps of a phase, and their measured cost."""
    import numpy as np

    from vmcjob.vmc import devices

    step = calculation.step_of(phase)
    began = time.perf_counter()
    program = step.lower(state).compile(step.options)
    compile_s = time.perf_counter() - began
    index, seconds = 0, []
    while index <= MAX_STEPS and sum(seconds) < limit_s:
        began = time.perf_counter()
        state, info = program(state, step.given(np.int32(index)))
        devices.unreplicate(info)  # waits for the devices
        seconds.append(time.perf_counter() - began)
        index += 1
    timed = sorted(seconds[1:] or seconds)  # the first step also loads the program
    n_timed, median = len(timed), timed[len(timed) // 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    measured = Measured(phase.value, median, n_timed, compile_s, _memory_need(program), peak)
    return state, measured


def _memory_need(program: Any) -> int | None:
    """Bytes that a program needs on one device; None where the compiler does not say."""
    found = program.memory_analysis()
    if found is None:
        return None
    sizes = (found.argument_size_in_bytes, found.output_size_in_bytes, found.temp_size_in_bytes)
    return sum(sizes) - found.alias_size_in_bytes


def _memory_of(device: Any) -> int:
    """Bytes of a GPU's memory that JAX may use."""
    return int((device.memory_stats() or {}).get("bytes_limit", 0))


def _memory_here() -> int:
    """Bytes of this machine's memory that are available now."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
