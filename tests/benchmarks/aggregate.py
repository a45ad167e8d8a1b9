"""What `vmcjob aggregate` costs beside reading the same bytes with Zarr alone.

    python -m tests.benchmarks.aggregate --stores 1000 --steps 100000

The store is of the store's own writer, with as many steps of training and of evaluation. Every run
has its chunks as hard links and a root of its own, so they come out of the system's cache for both:
no disk hides work. One of them is damaged; it must be named, and all others must be in the table.

Times are of whole commands, imports among them; memory is the largest sum over their processes,
with what they share counted once. Zarr opens the arrays that `aggregate` needs, one after the
other, and takes each whole.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from tests.cli.shell import COMMAND, Shell
from tests.runs import make_run
from vmcjob.rundir import Activity, Heartbeat, Outcome, OutcomeRecord, RunDir
from vmcjob.spec import dump_spec, parse_spec
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES

LOOK_S = 0.2  # from one look at the memory to the next
SPEC = 'name = "h2"\n[system]\natoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]\n'
SEEDS = 10  # of every point of a sweep
NEEDED = {
    "train": ("energy", "variance"),
    "evaluate": ("energy", "variance", "wall_time", "max_age"),
}
EVERYTHING = {phase: ("step", *columns) for phase, columns in SERIES.items()}
READ = """
import json, sys, numpy, zarr
wanted, paths = json.loads(sys.stdin.read())
for path in paths:
    root = zarr.open_group(path, mode="r", zarr_format=3, use_consolidated=False)
    for name in wanted:
        try:
            numpy.asarray(root[name][:])
        except ValueError as error:
            print(path, name, error)
"""


class Cost(NamedTuple):
    """Of a command."""

    seconds: float
    mebibytes: float


def write_store(path: Path, n_steps: int) -> None:
    """Energies that fall along with their variance, correlated over some steps."""
    rng = np.random.default_rng(0)
    layout = Layout(n_steps, n_steps, n_walkers=64, n_electrons=2, n_snapshots=1)
    store = RunStore.create(path, run_id="", spec_text=SPEC, provenance={}, layout=layout)
    fall = {"train": np.exp(-5.0 * np.arange(n_steps) / n_steps), "evaluate": np.zeros(n_steps)}
    rows = {}
    for phase, columns in SERIES.items():
        noise = np.convolve(rng.normal(size=n_steps + 9), np.full(10, 0.1), "valid")
        variance = 0.01 + 0.1 * fall[phase]
        known = {
            "energy": -1.17 + 0.5 * variance + 0.01 * noise,
            "variance": variance * (1.0 + 0.05 * rng.normal(size=n_steps)),
            "wall_time": np.arange(n_steps) * 0.01,
        }
        rows[phase] = {name: known.get(name, rng.random(n_steps)) for name in columns}
    walkers = np.zeros((64, 2, 3), np.float32)
    store.commit(
        Commit(
            checkpoint=Checkpoint("evaluate", n_steps, {"walkers": walkers}),
            snapshots=[(n_steps, walkers)],
            **rows,
        )
    )


def make_runs(root: Path, store: Path, n_stores: int) -> list[RunDir]:
    """Finished runs, each with the store under its own name; seeds of a sweep."""
    text = dump_spec(parse_spec(SPEC, "h2.toml").points[0].spec)
    document = json.loads((store / "zarr.json").read_text())
    runs = []
    for number in range(n_stores):
        point, run_id = number // SEEDS, f"h2-{number:010}"
        facts = {"point": {"R": 1.0 + 0.01 * point}, "science_sha256": f"{point:064}"}
        run = make_run(root, run_id, seed=number % SEEDS, **facts)
        run.write_spec_text(text)
        shutil.copytree(store, run.store_path, copy_function=os.link)
        document["attributes"]["run_id"] = run_id
        (run.store_path / "zarr.json").unlink()
        (run.store_path / "zarr.json").write_text(json.dumps(document))
        run.write_heartbeat(Heartbeat(phase=Activity.DONE, step=1, n_steps=1))
        run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
        runs.append(run)
    return runs


def damage(run: RunDir) -> None:
    """Flip a bit of one of its energies, and of nobody else's."""
    chunk = run.store_path / "evaluate" / "energy" / "c" / "0"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.unlink()
    chunk.write_bytes(data)


def family(pid: int) -> Iterator[int]:
    """A process and all that come from it."""
    yield pid
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from family(int(child))


def memory(pid: int) -> float:
    """Of a process and all that come from it, in MiB; a page that k of them share counts 1/k."""
    total = 0
    for member in family(pid):
        with suppress(OSError):
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def measure(command: Sequence[str], shell: Shell, request: str = "") -> tuple[Cost, str, str]:
    """What a command costs, and its output and errors."""
    files = [shell.cwd / name for name in ("request", "output", "errors")]
    files[0].write_text(request)
    with open(files[0]) as source, open(files[1], "w") as output, open(files[2], "w") as errors:
        start, largest = time.perf_counter(), 0.0
        process = subprocess.Popen(
            command,
            cwd=shell.cwd,
            env=shell.environment,
            stdin=source,
            stdout=output,
            stderr=errors,
        )
        while process.poll() is None:
            largest = max(largest, memory(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
        taken = time.perf_counter() - start
    return Cost(taken, largest), files[1].read_text(), files[2].read_text()


def measure_zarr(shell: Shell, runs: Sequence[RunDir], wanted: dict[str, tuple[str, ...]]) -> Cost:
    """Reading some arrays of all stores."""
    names = [f"{phase}/{column}" for phase, columns in wanted.items() for column in columns]
    request = json.dumps([names, [str(run.store_path) for run in runs]])
    cost, output, errors = measure([sys.executable, "-c", READ], shell, request)
    assert not errors, errors
    assert len(output.splitlines()) == 1, output  # the damaged one
    return cost


def measure_aggregate(shell: Shell, runs: Sequence[RunDir], *options: str) -> Cost:
    """The command; its table must have every run but the damaged one, which it must name."""
    cost, output, errors = measure([*COMMAND, "aggregate", "--json", *options], shell)
    table = json.loads(output)
    assert sum(row["runs"] for row in table["rows"]) == len(runs) - 1, errors
    (excluded,) = table["excluded"]
    assert excluded["run_id"] == runs[len(runs) // 2].path.name
    assert "evaluate/energy is not readable" in excluded["reason"]
    return cost


def main() -> None:
    """Print costs, and their ratios to reading the same bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        shell = Shell(Path(directory))
        write_store(shell.cwd / "run.zarr", options.steps)
        runs = make_runs(shell.runs, shell.cwd / "run.zarr", options.stores)
        damage(runs[len(runs) // 2])
        same = measure_zarr(shell, runs, NEEDED)
        costs = {
            "Zarr alone, the same arrays": same,
            "Zarr alone, all of both series": measure_zarr(shell, runs, EVERYTHING),
            "aggregate": measure_aggregate(shell, runs),
            "aggregate --processes 1": measure_aggregate(shell, runs, "--processes", "1"),
            "aggregate --processes 2": measure_aggregate(shell, runs, "--processes", "2"),
        }
    print(f"{options.stores} stores of {options.steps} steps of each series, one of them damaged")
    for name, cost in costs.items():
        print(
            f"{name:32} {cost.seconds:7.1f} s {cost.seconds / same.seconds:6.2f}"
            f" {cost.mebibytes:7.0f} MiB {cost.mebibytes / same.mebibytes:6.2f}"
        )


if __name__ == "__main__":
    main()
