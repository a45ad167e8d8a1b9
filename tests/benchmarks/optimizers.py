"""Energy against wall time for the natural gradients, each by its defaults, from one start.

    python -m tests.benchmarks.optimizers jobs/lih.toml jobs/be.toml --steps 600

One process per job. The optimizers take turns of a second, so that whatever else the machine does
slows all of them alike, until each has had the time that SPRING needs for `--steps` steps. Energies
are means over the training steps of the last fifth of the time so far, unclipped: what a training
curve shows, a little above what an evaluation would find.
"""

import argparse
import dataclasses
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from vmcjob.cli.text import format_energy
from vmcjob.run.calculation import build, configure_jax, make_system
from vmcjob.spec import JobSpec, Kfac, MinSr, Spring, Sr, read_spec
from vmcjob.stats import Estimate, estimate
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState
from vmcjob.vmc.hartree_fock import solve
from vmcjob.vmc.loop import iterate

OPTIMIZERS = {"SR (CG)": Sr(), "MinSR": MinSr(), "SPRING": Spring(), "K-FAC": Kfac()}
UNIT = "SPRING"
TURN_S = 1.0
SHARES = (0.25, 0.5, 1.0)


class Contender:
    """One optimizer: its state, what it has recorded, and the time it has had."""

    def __init__(self, spec: JobSpec, start: LoopState) -> None:
        """Compile, and begin with the parameters and walkers of `start`, on the host."""
        vmc = dataclasses.replace(build(spec).vmc, average_from=None)
        memory = vmc.optimizer.init(start.params)
        chain = ChainState(devices.shard(start.chain.r), devices.replicate(start.chain.width))
        self._state = LoopState(devices.replicate(start.params), devices.replicate(memory), chain)
        self._step = vmc.train_step()
        copy = jax.tree.map(lambda leaf: leaf.copy(), self._state)
        jax.block_until_ready(self._step(copy, jnp.asarray(0)))
        self._turn = 1  # steps
        self.seconds: list[float] = [0.0]  # after so many steps
        self.energies: list[float] = []
        self.variances: list[float] = []

    def take_turn(self) -> None:
        """Steps for about TURN_S."""
        n_steps, began = len(self.energies), time.perf_counter()
        infos = []
        for done in iterate(self._step, self._state, n_steps, n_steps + self._turn):
            self._state = done.state
            infos.append(done.info)
        for info in map(devices.unreplicate, infos):
            self.energies.append(float(info.energy))
            self.variances.append(float(info.variance))
        took = time.perf_counter() - began
        share = np.arange(1, self._turn + 1) / self._turn
        self.seconds += list(self.seconds[-1] + took * share)
        self._turn = max(1, round(self._turn * TURN_S / took))

    def after(self, seconds: float) -> tuple[int, Estimate, float]:
        """How many steps a time is good for; energy and variance in its last fifth."""
        first, last = np.searchsorted(self.seconds, [0.8 * seconds, seconds])
        window = slice(max(0, min(first, last - 2)), max(1, last))
        energy, variance = np.array(self.energies[window]), np.array(self.variances[window])
        return int(last), estimate(energy), float(variance.mean())


def begin(spec: JobSpec) -> LoopState:
    """The spec's own start: Hartree–Fock, pretraining, warm-up. Optimizer left out; on the host."""
    calculation = build(spec, solve(make_system(spec.system), spec.pretrain.basis))
    assert calculation.pretraining is not None
    state = calculation.initial_state()
    for done in iterate(calculation.pretraining.step(), state, 0, spec.pretrain.steps):
        state = done.state
    state = calculation.after_pretraining(state)
    for done in iterate(calculation.vmc.warmup_step(), state, 0, spec.sampler.warmup):
        state = done.state
    params, width = devices.unreplicate((state.params, state.chain.width))
    return LoopState(params, None, ChainState(jnp.asarray(devices.gather(state.chain.r)), width))


def compete(spec: JobSpec, n_steps: int) -> dict[str, Contender]:
    """All optimizers, each after the time of `n_steps` steps of UNIT."""
    start = begin(spec)
    contenders = {
        name: Contender(dataclasses.replace(spec, optimizer=optimizer), start)
        for name, optimizer in OPTIMIZERS.items()
    }
    unit = contenders[UNIT]
    while len(unit.energies) < n_steps:
        unit.take_turn()
        for other in contenders.values():
            while other.seconds[-1] < unit.seconds[-1]:
                other.take_turn()
    return contenders


def describe(contender: Contender, seconds: float, reference: float) -> str:
    """One optimizer's row: steps, errors after each share of the time, final variance."""
    found = [contender.after(share * seconds) for share in SHARES]
    cells = [
        format_energy(1e3 * (energy.mean - reference), 1e3 * energy.error) for _, energy, _ in found
    ]
    n_steps, _, variance = found[-1]
    return " | ".join([f"{n_steps}", *cells, f"{variance:.3f}"])


def main() -> None:
    """Print a table for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", type=Path)
    parser.add_argument("--steps", type=int, default=600, help=f"of {UNIT}")
    options = parser.parse_args()
    for path in options.jobs:
        spec = read_spec(path).points[0].spec
        if spec.system.reference is None:
            parser.error(f"{path}: system.reference: missing, and the table is relative to it")
        configure_jax(spec.numerics)
        contenders = compete(spec, options.steps)
        seconds = contenders[UNIT].seconds[options.steps]
        shares = " | ".join(f"{share:g}" for share in SHARES)
        print(f"{spec.name}, mHa off the reference after shares of {options.steps} {UNIT} steps")
        print(f"| optimizer | steps | {shares} | variance |")
        for name, contender in contenders.items():
            print(f"| {name} | {describe(contender, seconds, spec.system.reference)} |", flush=True)


if __name__ == "__main__":
    main()
