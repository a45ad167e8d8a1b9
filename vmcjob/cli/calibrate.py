"""The calibration of `estimate`: real steps of a run, timed by a process of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vmcjob.cli.screen import say

if TYPE_CHECKING:
    from vmcjob.spec import JobSpec
    from vmcjob.spec.size import Size

MEMORY_SHARE = 0.9  # of the memory that walkers may fill
MATRICES = 16
"""Matrices of walkers by walkers in the program of `minsr` and `spring`.

The programs of jobs/h2.toml with 512 and 2048 walkers need 24.4 and 298 MB. A line and a square
through both numbers give 16 matrices.
"""
MOVES, TRAINING, WAITING, EVALUATION = "warmup", "train", "equilibrate", "evaluate"


@dataclass(frozen=True)
class Calibration:
    """The measured cost of steps on this machine; `why_not` says why something is missing."""

    machine: dict[str, Any] = field(default_factory=dict)  # JSON, as of all below
    phases: dict[str, dict[str, Any]] = field(default_factory=dict)
    why_not: str = ""
    exit_code: int = 0  # of the calibration

    @property
    def program_bytes(self) -> int | None:
        """Memory on a device of the largest program that was measured."""
        known = [of["program_bytes"] for of in self.phases.values() if of["program_bytes"]]
        return max(known, default=None)


def calibrate(spec: "JobSpec", limit_s: float) -> Calibration:
    """The measurements of a process that has at most so many seconds."""
    from vmcjob.spec import dump_spec

    say(f"calibrating for at most {limit_s:g} s; --no-calibration does without", "dim")
    command = [sys.executable, "-P", "-m", "vmcjob.run.calibration", str(limit_s)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    why_not, exit_code = "", 0
    try:
        output, errors = process.communicate(dump_spec(spec), timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        why_not = f"the calibration was ended after {limit_s:g} s; --seconds gives it more time"
    else:
        if exit_code := process.returncode:
            lines = errors.strip().splitlines() or [f"exit code {process.returncode}"]
            why_not = f"the calibration failed: {lines[-1]}"
    return replace(read_calibration(output), why_not=why_not, exit_code=exit_code)


def read_calibration(output: str) -> Calibration:
    """The measurements that a calibration has printed before its end."""
    machine: dict[str, Any] = {}
    phases: dict[str, dict[str, Any]] = {}
    for line in output.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue  # it was ended in the middle of the line
        found = json.loads(line)
        if found.pop("kind") == "Machine":
            machine = found
        else:
            phases[found["phase"]] = found
    return Calibration(machine, phases)


def hours_of(spec: "JobSpec", calibration: Calibration, n_evaluate: int) -> float | None:
    """Hours of all phases at the measured pace; None if a step that is needed was not timed.

    A step of pretraining counts as a step of training, which costs more. What was not timed counts
    as something else: moves as evaluation, evaluation as training. The warm-up of evaluation counts
    as moves, or as training where parameters respond to forces.
    """
    phases = calibration.phases
    counts = {
        TRAINING: spec.train.steps + spec.pretrain.steps,
        EVALUATION: n_evaluate,
        MOVES: spec.sampler.warmup,
        WAITING: spec.evaluate.warmup if n_evaluate else 0,
    }
    if TRAINING not in phases and counts[TRAINING]:
        return None
    total, instead = 0.0, TRAINING if "forces" in spec.evaluate.observables else MOVES
    for phase, n_steps in counts.items():
        names = (phase, instead if phase == WAITING else phase, EVALUATION, TRAINING)
        timed = next((phases[name] for name in names if name in phases), None)
        if n_steps and timed is None:
            return None
        total += n_steps * timed["step_s"] if timed else 0.0
    return (total + sum(of["compile_s"] for of in phases.values())) / 3600


def most_walkers(spec: "JobSpec", size: "Size", calibration: Calibration) -> int | None:
    """About the largest number of walkers, on all devices together, that fits this machine.

    None without a measurement. The memory of the largest program on a device grows with the
    walkers. It also grows as their square where the optimizer has a matrix of walkers by walkers:
    each device has this matrix of the walkers of all devices. The parameters' part stays.
    """
    program, memory = calibration.program_bytes, calibration.machine.get("memory_bytes")
    if program is None or not memory:
        return None
    room = MEMORY_SHARE * memory / calibration.machine["n_devices"]
    number = 8 if spec.numerics.dtype == "float64" else 4
    n, fixed = spec.sampler.walkers, size.parameters * number
    square = MATRICES * number if spec.optimizer.kind in ("minsr", "spring") else 0
    slope = max(program - fixed - square * n**2, number) / n
    low, high = 0, 2**40
    while high - low > 1:
        middle = (low + high) // 2
        fits = fixed + slope * middle + square * middle**2 <= room
        low, high = (middle, high) if fits else (low, middle)
    return low
