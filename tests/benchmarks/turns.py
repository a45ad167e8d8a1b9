"""How long steps take: of training against another checkout's, of evaluation with observables.

    git worktree add ../before 8401b99
    python -m tests.benchmarks.turns jobs/h2.toml --against ../before
    python -m tests.benchmarks.turns jobs/he.toml --observables components dipole quadrupole r2

Both sides take turns of a quarter of a second, so that whatever else the machine does slows them
alike; given is the median over pairs of turns of how much longer a step takes than that of the
other side, and the quartiles. Turns alternate in who goes first. Checkouts have a process each.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vmcjob.run.calculation import build, configure_jax
from vmcjob.spec import JobSpec, read_spec

TURN_S = 0.25
REPOSITORY = Path(__file__).parents[2]

Turn = Callable[[int], float]
"""So many steps, and the seconds that they took."""


def read(path: str) -> JobSpec:
    """The job without a Hartree-Fock start, which decides no time."""
    spec = read_spec(Path(path)).points[0].spec
    return replace(spec, pretrain=replace(spec.pretrain, steps=0))


def turns_of(spec: JobSpec, phase: str) -> Turn:
    """Steps of "train" or "evaluate", after those that compile and find |psi|^2."""
    calculation = build(spec)
    vmc = calculation.vmc
    state: Any = calculation.initial_state()
    warmup = vmc.warmup_step()
    for k in range(50):
        state, _ = warmup(state, jnp.asarray(k))
    step = vmc.train_step() if phase == "train" else vmc.evaluate_step()
    state, _ = step(state, jnp.asarray(0))
    jax.block_until_ready(state)
    held = [state]

    def turn(n_steps: int) -> float:
        began = time.perf_counter()
        for k in range(n_steps):
            held[0], _ = step(held[0], jnp.asarray(1 + k))
        jax.block_until_ready(held[0])
        return time.perf_counter() - began

    return turn


def serve(path: str) -> None:
    """Take turns of training as asked for by line, and answer with their seconds."""
    spec = read(path)
    with suppress(ImportError):  # what a worker of this checkout is told, if it is told anything
        import_jax = import_module("vmcjob.run.startup").import_jax
        import_jax(*[spec] * len(signature(import_jax).parameters))
    configure_jax(spec.numerics)
    turn = turns_of(spec, "train")
    print("ready", flush=True)
    for line in sys.stdin:
        print(turn(int(line)), flush=True)


def turns_elsewhere(checkout: Path, job: Path) -> Turn:
    """Turns of training in a process of its own, with the package of a checkout."""
    from tests.benchmarks import INHERITED  # as served, this is a file of no package

    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(job)],
        env=INHERITED | {"PYTHONPATH": str(checkout.resolve())},
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    questions, answers = process.stdin, process.stdout
    assert questions is not None
    assert answers is not None
    assert answers.readline() == "ready\n"

    def turn(n_steps: int) -> float:
        questions.write(f"{n_steps}\n")
        questions.flush()
        return float(answers.readline())

    return turn


def ratios(first: Turn, second: Turn, n_turns: int) -> np.ndarray:
    """Time of the first over that of the second, pair by pair."""
    n_steps = max(1, round(TURN_S / second(1)))
    n_steps = max(1, round(TURN_S * n_steps / second(n_steps)))
    found = []
    for k in range(n_turns):
        if k % 2:
            after = second(n_steps)
            found.append(first(n_steps) / after)
        else:
            found.append(first(n_steps) / second(n_steps))
    return np.array(found)


def report(what: str, found: np.ndarray) -> None:
    """The median, and how sure it is."""
    low, middle, high = np.percentile(found, [25, 50, 75])
    error = 1.25 * found.std() / np.sqrt(len(found))
    print(f"{what}: {middle:.3f} ± {error:.3f} (quartiles {low:.3f}, {high:.3f})", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a ratio for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", type=Path)
    parser.add_argument("--against", type=Path, help="another checkout, for training steps")
    parser.add_argument("--observables", nargs="+", help="of evaluation steps, in every step")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
        return
    for job in options.jobs:
        if options.against:
            ours, theirs = (
                turns_elsewhere(x, job.resolve()) for x in (REPOSITORY, options.against)
            )
            report(
                f"{job.stem}, training, over that of {options.against}",
                ratios(ours, theirs, options.turns),
            )
        if options.observables:
            spec = read(str(job))
            configure_jax(spec.numerics)
            names = tuple(options.observables)
            bare = replace(spec.evaluate, observables=())
            full = replace(spec.evaluate, observables=names, observe_every=1)
            ours, theirs = (turns_of(replace(spec, evaluate=x), "evaluate") for x in (full, bare))
            found = ratios(ours, theirs, options.turns)
            report(f"{job.stem}, evaluation, with {' '.join(names)} over without", found)


if __name__ == "__main__":
    main()
