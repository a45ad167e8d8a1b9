"""Parts of the check that are runs: workers in processes of their own, as a job starts them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.benchmarks import INHERITED
from tests.benchmarks.growth import seconds_per_step
from tests.run.harness import REPOSITORY, make_run
from vmcjob.rundir import Activity, RunDir
from vmcjob.spec import FermiNet, JobSpec, dump_spec, read_spec
from vmcjob.store import RunStore
from vmcjob.supervisor.share import DEVICES, Share

SPECS = REPOSITORY / "tests" / "benchmarks"
N_WALKERS_TINY = 16
N_STEPS, N_STEPS_TINY = 1000, 200  # of training, where only steps count
PATIENCE_S = 300.0


def read(name: str, *, is_tiny: bool) -> JobSpec:
    """A spec that comes to its energy soon; tiny, of so few steps and walkers that it does not."""
    spec = read_spec(SPECS / f"{name}.toml").points[0].spec
    if not is_tiny:
        return spec
    return replace(
        spec,
        ansatz=FermiNet(determinants=1, layers=1, one_electron_width=4, two_electron_width=4),
        sampler=replace(spec.sampler, walkers=N_WALKERS_TINY, steps=2),
        pretrain=replace(spec.pretrain, steps=min(2, spec.pretrain.steps)),
        train=replace(spec.train, steps=20),
        evaluate=replace(spec.evaluate, steps=20),
    )


def training_alone(*, is_tiny: bool) -> JobSpec:
    """The spec of H2 with so many steps of training, committed often, and no evaluation."""
    spec = read("h2", is_tiny=is_tiny)
    return replace(
        spec,
        train=replace(spec.train, steps=N_STEPS_TINY if is_tiny else N_STEPS),
        evaluate=replace(spec.evaluate, steps=0),
        output=replace(spec.output, flush_seconds=0.2),
    )


def begin(run: RunDir, more: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the worker of a run."""
    environment = INHERITED | {"PYTHONPATH": str(REPOSITORY)} | dict(more or {})
    command = [sys.executable, "-m", "vmcjob", "run", str(run.path)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def finish(worker: subprocess.Popen[str]) -> None:
    """Wait for a worker; RuntimeError with its last words if it fails."""
    said = worker.communicate()[1]
    if worker.returncode:
        raise RuntimeError(f"worker ended with exit code {worker.returncode}: {said[-400:]}")


def energy(name: str, *, is_tiny: bool) -> dict[str, Any]:
    """The energy of a molecule beside its exact one, and how long the run took."""
    spec = read(name, is_tiny=is_tiny)
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        finish(begin(make_run(Path(folder), dump_spec(spec))))
        seconds = time.monotonic() - began
        command = [sys.executable, "-m", "vmcjob", "aggregate", "--json", "--runs", folder]
        # Exit code 3 says that a result is not converged, which its row says too.
        said = subprocess.run(command, env=INHERITED, capture_output=True, text=True, check=False)
    (row,) = json.loads(said.stdout)["rows"]
    found = {key: row[key] for key in ("energy", "error", "verdict")}
    return found | {"reference": spec.system.reference, "seconds": seconds}


def resume(*, is_tiny: bool) -> dict[str, Any]:
    """A worker is killed in training, and the next one goes on from the last commit."""
    spec = training_alone(is_tiny=is_tiny)
    with TemporaryDirectory() as folder:
        run = make_run(Path(folder), dump_spec(spec))
        worker = begin(run)
        killed_at = _kill_in_training(run, worker)
        finish(begin(run))
        store = RunStore.open(run.store_path)
        steps, energies = (store.series("train")[name] for name in ("step", "energy"))
        attempts = [line["event"] for line in run.read_attempts()]
    n_steps = spec.train.steps
    if len(steps) != n_steps or np.any(np.diff(steps) != 1):
        raise RuntimeError(f"expected {n_steps} steps one by one, found {steps}")
    if not np.isfinite(energies).all():
        raise RuntimeError("some energies are not finite")
    return {"killed_at_step": killed_at, "steps": n_steps, "attempts": attempts}


def _kill_in_training(run: RunDir, worker: subprocess.Popen[str]) -> int:
    """SIGKILL as soon as training is under way; the step that was told last."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and worker.poll() is None:
        beat = run.read_heartbeat()
        if beat is not None and beat.phase is Activity.TRAIN and beat.step > 0:
            os.kill(worker.pid, signal.SIGKILL)
            worker.communicate()
            return beat.step
        time.sleep(0.01)
    worker.kill()
    raise RuntimeError(f"training was not seen; the worker said: {worker.communicate()[1][-400:]}")


def shared(*, is_tiny: bool) -> dict[str, Any]:
    """A run alone, then two at once that share the first GPU, as with `runs_per_job = 2`."""
    spec = training_alone(is_tiny=is_tiny)
    first = INHERITED.get(DEVICES, "0").split(",")[0]
    with TemporaryDirectory() as folder:
        runs = [make_run(Path(folder, str(k)), dump_spec(spec)) for k in range(3)]
        finish(begin(runs[0], {DEVICES: first}))
        places = [Share(place, 2).environ({DEVICES: first}) for place in range(2)]
        workers = [begin(run, more) for run, more in zip(runs[1:], places, strict=True)]
        for worker in workers:
            finish(worker)
        alone, *both = (seconds_per_step(run) for run in runs)
    return {"alone_s": alone, "together_s": both, "throughput": sum(alone / s for s in both)}
