"""When a training has come within 1 mHa of the exact energy, and stays there; from the command on.

    python -m tests.benchmarks.accuracy jobs/lih.toml --core 0

The job is submitted as a user would, to this machine, on one of its cores or all, with a compile
cache that is empty at first and again with what is then in it (`--starts 2`). A training has
arrived with the first step from which on nine of ten means over 50 steps are within 1 mHa. Seconds
are also given in passes of log|psi| over all walkers, measured right after, which is what they may
be compared in between machines. The training itself is never better than its schedule: a job that
trains for longer comes later. `--checkout` runs another one's program, with whatever job is named.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.benchmarks.parts import fastest
from vmcjob.run.calculation import build, configure_jax
from vmcjob.spec import JobSpec, read_spec
from vmcjob.store import RunStore
from vmcjob.vmc.wavefunction import log_modulus

WINDOW = 50  # steps
CLOSE = 1e-3  # hartree
SUSTAINED = 0.9
MARKS = 0.1, 0.25, 0.5, 1.0  # parts of the training


class Course(NamedTuple):
    """Energies of a training, and the seconds since the command at which they were known."""

    seconds: np.ndarray
    energies: np.ndarray

    def means(self) -> np.ndarray:
        """Over WINDOW steps, the last one given."""
        return np.convolve(self.energies, np.ones(WINDOW) / WINDOW, "valid")

    def arrival(self, exact: float) -> float | None:
        """Seconds, or None: it is not there to stay."""
        is_close = np.abs(self.means() - exact) <= CLOSE
        left = np.arange(len(is_close), 0, -1)
        parts = np.cumsum(is_close[::-1])[::-1] / left
        arrived = np.flatnonzero(is_close & (parts >= SUSTAINED))
        return float(self.seconds[WINDOW - 1 + arrived[0]]) if len(arrived) else None


def course(job: Path, root: Path, checkout: Path, cache: str) -> Course:
    """Submit the job to a checkout's program, and wait for its end."""
    own = {"JAX_COMPILATION_CACHE_DIR": cache, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "vmcjob", "submit", str(job.absolute()), "--local"]
    command += ["--runs", str(root.absolute()), "--follow"]
    began = time.time()
    subprocess.run(
        command, cwd=checkout, env=os.environ | own, check=True, stdout=subprocess.DEVNULL
    )
    (path,) = root.glob(f"{job.stem}-*/run.zarr")
    store = RunStore.open(path, run_id=path.parent.name)
    train, evaluate = store.series("train"), store.series("evaluate")
    events = (path.parent / "attempts.jsonl").read_text().splitlines()
    last = (evaluate if len(evaluate["step"]) else train)["wall_time"][-1]
    clock = json.loads(events[-1])["time"] - float(last)
    return Course(train["wall_time"] + clock - began, train["energy"])


def seconds_of_a_pass(spec: JobSpec) -> float:
    """log|psi| of all walkers, on whatever this process may use."""
    calculation = build(spec)
    vmc, state = calculation.vmc, calculation.initial_state()
    log_psi = log_modulus(vmc.psi, vmc.nuclei)
    params, r = jax.tree.map(lambda leaf: leaf[0], (state.params, jnp.asarray(state.chain.r)))
    of_all = jax.jit(jax.vmap(log_psi, (None, 0)))
    return fastest({"pass": lambda: of_all(params, r)}, 50)["pass"]


def main() -> None:
    """Print what is known at some parts of the training, and when it arrived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", type=Path)
    parser.add_argument("--core", type=int, help="the one to use")
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--runs", type=Path, help="where the runs are kept; else they are not")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    for job in options.jobs:
        spec = read_spec(job).points[0].spec
        exact = spec.system.reference
        if exact is None:
            parser.error(f"{job}: system.reference: missing, and errors are relative to it")
        with tempfile.TemporaryDirectory() as scratch:
            root = options.runs or Path(scratch)
            found = [
                course(job, root / str(number), options.checkout.absolute(), f"{scratch}/cache")
                for number in range(options.starts)
            ]
        configure_jax(spec.numerics)
        unit = seconds_of_a_pass(spec)
        print(f"{spec.name}: {len(found[0].energies)} steps; a pass takes {1e3 * unit:.2f} ms")
        for number, each in enumerate(found):
            errors = 1e3 * (each.means() - exact)
            marks = [round(part * len(errors)) - 1 for part in MARKS]
            told = (f"{each.seconds[WINDOW - 1 + i]:.0f} s {errors[i]:+.2f} mHa" for i in marks)
            arrival = each.arrival(exact)
            when = "never" if arrival is None else f"{arrival:.0f} s, {arrival / unit:.0f} passes"
            print(f"  start {number}: first step {each.seconds[0]:.1f} s;", ", ".join(told))
            print(f"  within 1 mHa to stay: {when}", flush=True)


if __name__ == "__main__":
    main()
