"""How soon walkers forget where they were, with plain and with scaled moves, as a run left them.

    python -m tests.benchmarks.moves runs/lih-* runs/li-* runs/be-*

Of each run, the last walkers and parameters; τ is the integrated autocorrelation time, in steps of
ten moves, of what single walkers have: log|ψ|, the sum of r², the dipole moment along z.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vmcjob.analysis import open_run
from vmcjob.run.attempt import read_own_spec
from vmcjob.run.calculation import build, configure_jax
from vmcjob.rundir import RunDir
from vmcjob.vmc.contracts import ChainState
from vmcjob.vmc.sampler import Moves, sample, tune_width
from vmcjob.vmc.wavefunction import log_modulus

N_TUNING, N_STEPS = 120, 400
TARGET = 0.525
MIN_CORRELATION = 0.02  # where the sum ends

Step = Callable[[ChainState, Array], tuple[ChainState, Array, Array]]


def steps_of(path: Path) -> tuple[ChainState, dict[str, Step]]:
    """Walkers of a run, and a step of each kind of move."""
    spec = read_own_spec(RunDir.open(path))
    configure_jax(spec.numerics)
    run, vmc = open_run(path), build(spec).vmc
    params, log_psi = run.wave_function().params, log_modulus(vmc.psi, vmc.nuclei)
    r = jnp.asarray(run.walkers.r.isel(snapshot=-1).values)

    def step_with(moves: Moves) -> Step:
        def step(chain: ChainState, key: Array) -> tuple[ChainState, Array, Array]:
            found = sample(log_psi, params, key, chain, moves, vmc.nuclei)
            return found.chain, found.log_abs, found.acceptance

        return jax.jit(step)

    kinds = {"plain": False, "scaled": True}
    found = {name: step_with(Moves(spec.sampler.steps, kind)) for name, kind in kinds.items()}
    return ChainState(r, jnp.asarray(0.2, r.dtype)), found


def tau(x: np.ndarray) -> float:
    """Of series of walkers, (step, walker), about the mean of all; ½ for independent ones."""
    x = x - x.mean()
    total, square = 0.5, float(np.mean(x * x))
    for lag in range(1, len(x) // 3):
        correlation = float(np.mean(x[:-lag] * x[lag:])) / square
        if correlation < MIN_CORRELATION:
            break
        total += correlation
    return total


def measure(chain: ChainState, step: Step) -> list[float]:
    """τ of log|ψ|, of r² and of the dipole moment; the acceptance."""
    key, rows, accepted = jax.random.key(1), [], []
    for k in range(N_TUNING + N_STEPS):
        chain, log_abs, acceptance = step(chain, jax.random.fold_in(key, k))
        if k < N_TUNING:
            chain = tune_width(chain, acceptance, TARGET)
        else:
            r = np.asarray(chain.r, float)
            accepted.append(float(acceptance))
            rows.append([np.asarray(log_abs), np.sum(r**2, (1, 2)), np.sum(r[..., 2], 1)])
    series = np.moveaxis(np.array(rows), 1, 0)
    return [*map(tau, series), float(np.mean(accepted))]


def main() -> None:
    """A row for each run and kind of move."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    print("| run | moves | log psi | r2 | dipole | acceptance |")
    print("|" + " --- |" * 6)
    for path in parser.parse_args().runs:
        chain, steps = steps_of(path)
        for name, step in steps.items():
            cells = [f"{number:.2f}" for number in measure(chain, step)]
            print(f"| {path.name} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
