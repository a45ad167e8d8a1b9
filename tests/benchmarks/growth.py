"""How a training step grows: with its electrons, and with the devices that share its walkers.

    python -m tests.benchmarks.growth electrons 2 4 8 12 16 20 30 --json ferminet.jsonl
    python -m tests.benchmarks.growth devices --rounds 3
    python -m tests.benchmarks.growth collectives

Hydrogen chains with the default networks; what came of it stands in README.md beside this file.
Times of electrons are what the processor needs, in the fastest of some turns, so that nothing that
goes on beside counts; they mean most where there is one core, as under `taskset -c 0`. Bytes are
what a step's program needs beside what it is given, by XLA's account, compiled with as many walkers
at a time as an accelerator would take. What the JSON file has already is not measured again.

Devices are processes with a core each, for the devices that XLA makes of one process share their
threads. A run of one is compared with a run of two that share twice as many walkers, and with two
runs of one at the same time, which share nothing but the machine.
"""

import argparse
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from tests.benchmarks.memory import Compiling
from tests.benchmarks.parts import PASS, STEP, Stepping, fastest, parts
from tests.benchmarks.step import placed
from tests.collectives import of_compiled
from tests.run.harness import finish, free_address, make_run, start
from vmcjob.fwdlap import chunks
from vmcjob.protocol.rank import ALONE, Rank
from vmcjob.run.calculation import build, configure_jax
from vmcjob.rundir import RunDir
from vmcjob.spec import JobSpec, dump_spec, parse_spec
from vmcjob.store import RunStore
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState
from vmcjob.vmc.phases import Phase

SPACING = 1.8  # of the atoms, bohr: about where a chain is lowest
N_WARMUP = 20
SKIPPED = 1 / 3  # of a training, during which blocks find their length
SPEC = """
name = "chain"
[system]
atoms = {atoms}
[ansatz]
kind = "{ansatz}"
[optimizer]
kind = "{optimizer}"
[sampler]
walkers = {walkers}
warmup = 20
[pretrain]
steps = 0
"""

Row = dict[str, Any]  # of JSON: names, numbers, and numbers by name


def chain(n_electrons: int, ansatz: str, optimizer: str, n_walkers: int) -> JobSpec:
    """A hydrogen chain."""
    atoms = json.dumps([["H", 0.0, 0.0, SPACING * i] for i in range(n_electrons)])
    text = SPEC.format(atoms=atoms, ansatz=ansatz, optimizer=optimizer, walkers=n_walkers)
    (point,) = parse_spec(text, "chain.toml").points
    return point.spec


def warmed_up(spec: JobSpec) -> LoopState:
    """Untrained parameters and walkers that have found them, on the host."""
    calculation = build(spec)
    state, step = calculation.initial_state(), calculation.vmc.warmup_step()
    for k in range(N_WARMUP):
        state, _ = step(state, jnp.asarray(k))
    params, width = devices.unreplicate((state.params, state.chain.width))
    return LoopState(params, None, ChainState(jnp.asarray(devices.gather(state.chain.r)), width))


def seconds_of(spec: JobSpec, n_rounds: int) -> Row:
    """A step and its parts, each by itself: the processor's time in the fastest of some turns."""
    begin, vmc = warmed_up(spec), build(spec).vmc
    state = placed(vmc, begin)
    stepping = Stepping(vmc, state)
    calls = parts(vmc, state) | {STEP: stepping}
    seconds = fastest(calls, n_rounds, clock=time.process_time)
    info: Any = devices.unreplicate(stepping())
    assert info.is_finite, "no training goes on like this"
    n_params = sum(leaf.size for leaf in jax.tree.leaves(begin.params))
    return {"parameters": n_params, "seconds": seconds}


def bytes_of(spec: JobSpec) -> Row:
    """What a step needs beside what it is given."""
    calculation = build(spec)
    state = calculation.initial_state()
    as_on_a_gpu = patch.object(chunks, "CACHE_BYTES", chunks.DEVICE_BYTES)
    with patch.object(devices, "pmap", Compiling), as_on_a_gpu:
        program: Any = calculation.step_of(Phase.TRAIN)(state, jnp.asarray(0))[0]
    return {"bytes": {STEP: program.memory_analysis().temp_size_in_bytes}}


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """a of size^a, by least squares of logarithms over the larger half of the sizes."""
    half = len(sizes) // 2
    if len(sizes) - half < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


def print_growth(rows: Sequence[Row]) -> None:
    """A line for every part: times in passes of log|psi| at the same size, MiB, exponents."""
    sizes = [row["electrons"] for row in rows]
    print(f"{'electrons':24}", *(f"{n:8}" for n in sizes), "exponent")
    print(f"{'parameters':24}", *(f"{row['parameters']:8}" for row in rows), end=" ")
    print(f"{exponent(sizes, [row['parameters'] for row in rows]):8.2f}")
    first = rows[0]["seconds"][PASS]
    for name in rows[0]["seconds"]:
        found = [row["seconds"][name] for row in rows]
        units = [first if name == PASS else row["seconds"][PASS] for row in rows]
        cells = [f"{s / unit:8.2f}" for s, unit in zip(found, units, strict=True)]
        print(f"{name:24}", *cells, f"{exponent(sizes, found):8.2f}")
    rest = [name for name in rows[0]["seconds"] if name not in (PASS, STEP)]
    share = [sum(row["seconds"][name] for name in rest) / row["seconds"][STEP] for row in rows]
    print(f"{'sum of parts / step':24}", *(f"{x:8.2f}" for x in share))
    for name in rows[0]["bytes"]:
        found = [row["bytes"][name] for row in rows]
        cells = [f"{n / 2**20:8.2f}" for n in found]
        print(f"{name + ', MiB':24.24}", *cells, f"{exponent(sizes, found):8.2f}")


def keep(row: Row, found: Row, path: Path | None) -> None:
    """Complete a row, also in the file."""
    row |= found
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def measure_electrons(options: argparse.Namespace) -> None:
    """Print the table of an ansatz."""
    rows: dict[int, Row] = {n: {"electrons": n} for n in options.electrons}
    if options.json is not None and options.json.exists():
        for found in map(json.loads, options.json.read_text().splitlines()):
            rows.setdefault(found["electrons"], {}).update(found)
    for n, row in rows.items():
        spec = chain(n, options.ansatz, "spring", options.walkers)
        configure_jax(spec.numerics)
        if "seconds" not in row:
            keep(row, seconds_of(spec, options.rounds), options.json)
        if "bytes" not in row:
            keep(row, bytes_of(spec), options.json)
        jax.clear_caches()
    print_growth([rows[n] for n in sorted(rows)])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Children that start meanwhile stay on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def seconds_per_step(run: RunDir) -> float:
    """Of a finished training, in the fastest of its blocks of about a second."""
    clock = RunStore.open(run.store_path).series("train")["wall_time"]
    ends = np.append(np.flatnonzero(np.diff(clock)), len(clock) - 1)
    ends = ends[np.searchsorted(ends, SKIPPED * len(clock)) :]
    return float(np.min(np.diff(clock[ends]) / np.diff(ends)))


def train(spec: JobSpec, cores: Sequence[int], *, are_ranks: bool) -> float:
    """Seconds per step: of one run that all cores share, or the mean of a run on each."""
    with TemporaryDirectory() as folder:
        n_runs = 1 if are_ranks else len(cores)
        runs = [make_run(Path(folder, str(k)), dump_spec(spec)) for k in range(n_runs)]
        address = free_address()
        workers: list[subprocess.Popen[str]] = []
        for k, core in enumerate(cores):
            rank = Rank(k, len(cores), address) if are_ranks and len(cores) > 1 else ALONE
            with on_core(core):
                workers.append(start(runs[min(k, n_runs - 1)], rank=rank))
        for worker in workers:
            code, log = finish(worker)
            assert code == 0, log
        return float(np.mean([seconds_per_step(run) for run in runs]))


def measure_devices(options: argparse.Namespace) -> None:
    """Print how much longer a step takes where devices share as many walkers each."""
    cores = sorted(os.sched_getaffinity(0))[: options.devices]
    assert len(cores) == options.devices, "every device needs a core of its own"
    for optimizer in options.optimizers:
        alone = chain(options.electrons, options.ansatz, optimizer, options.walkers)
        train_only = {
            "train": replace(alone.train, steps=options.steps),
            "evaluate": replace(alone.evaluate, steps=0),
        }
        alone = replace(alone, **train_only)
        larger = replace(alone.sampler, walkers=options.walkers * options.devices)
        shared = replace(alone, sampler=larger)
        for k in range(options.rounds):
            began = time.perf_counter()
            one = train(alone, [cores[k % len(cores)]], are_ranks=False)
            both = train(alone, cores, are_ranks=False)
            two = train(shared, cores, are_ranks=True)
            print(
                f"{optimizer}: one / shared {one / two:.3f}; one / side by side {one / both:.3f} "
                f"({time.perf_counter() - began:.0f} s, load {os.getloadavg()[0]:.1f})",
                flush=True,
            )


def measure_collectives(options: argparse.Namespace) -> None:
    """Print what the devices say to one another in a step, from the program that XLA compiled."""
    jax.config.update("jax_num_cpu_devices", options.devices)
    for optimizer in options.optimizers:
        n_walkers = options.walkers * options.devices
        spec = chain(options.electrons, options.ansatz, optimizer, n_walkers)
        configure_jax(spec.numerics)
        calculation = build(spec)
        state = calculation.initial_state()
        with patch.object(devices, "pmap", Compiling):
            program: Any = calculation.step_of(Phase.TRAIN)(state, jnp.asarray(0))[0]
        found = of_compiled(program.as_text())
        n_params = sum(leaf[0].size for leaf in jax.tree.leaves(state.params))
        print(f"{optimizer}, {n_walkers} walkers, {n_params} parameters, {options.devices} devices")
        groups = Counter((each.kind, each.is_in_loop) for each in found)
        for (kind, is_in_loop), n in sorted(groups.items()):
            sizes = [c.n_bytes for c in found if (c.kind, c.is_in_loop) == (kind, is_in_loop)]
            where = "a round of a loop" if is_in_loop else "a step"
            print(f"| {kind} | {where} | {n} | {sum(sizes)} | {max(sizes)} |")
        once = [each for each in found if not each.is_in_loop]
        print(f"sent by a device, once: {sum(c.sent(options.devices) for c in once):.0f} bytes")


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    electrons = commands.add_parser("electrons")
    electrons.set_defaults(measure=measure_electrons)
    electrons.add_argument("electrons", nargs="+", type=int)
    electrons.add_argument("--rounds", type=int, default=8)
    electrons.add_argument("--json", type=Path, help="rows measured so far; new ones are added")
    scaling, said = commands.add_parser("devices"), commands.add_parser("collectives")
    scaling.set_defaults(measure=measure_devices)
    scaling.add_argument("--rounds", type=int, default=3)
    scaling.add_argument("--steps", type=int, default=90, help="of each training")
    said.set_defaults(measure=measure_collectives)
    for command in (scaling, said):
        command.add_argument("--devices", type=int, default=2)
        command.add_argument("--electrons", type=int, default=8)
        command.add_argument("--optimizers", nargs="+", default=["spring", "kfac"])
    for command in (electrons, scaling, said):
        command.add_argument("--ansatz", default="ferminet", choices=["ferminet", "psiformer"])
        command.add_argument("--walkers", type=int, default=128, help="of a device")
    options = parser.parse_args()
    options.measure(options)


if __name__ == "__main__":
    main()
