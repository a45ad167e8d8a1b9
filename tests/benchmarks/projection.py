"""What a training step at paper size would cost on many GPUs, projected: nothing is measured here.

    python -m tests.benchmarks.projection

The programs are traced for so many devices, which gives the bytes of every collective; operations
are counted by XLA for one walker, and by formula for what SPRING makes of all of them. Both are
then divided by what the vendor says that the hardware can do. So times are lower bounds, and the
share of communication tells how the two grow, not what a cluster will show: kernels at these sizes
reach a fraction of the peak, no collective the whole of a link, and every collective has a latency.
"""

import argparse
import json
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp

from tests.benchmarks.memory import NETWORKS, SPEC, SYSTEMS
from tests.collectives import Collective, Tracing
from vmcjob.run.calculation import build
from vmcjob.spec import JobSpec, parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.centred_scores import SUM_COST
from vmcjob.vmc.layers import split_gradient
from vmcjob.vmc.phases import Calculation, Phase
from vmcjob.vmc.wavefunction import log_modulus

PEAK = 67e12  # of an H100, float32 without tensor cores, operations per second
WITHIN_A_NODE = 450e9  # NVLink, bytes per second and direction
BETWEEN_NODES = 50e9  # 400 Gb/s for each GPU
A_NODE = 8  # GPUs
ROUNDS = 3  # of conjugate gradients in a step of SPRING: two in the chains of `growth`, 31 at most
UPPER = 1.25  # operations for a pair of walkers and a score: five eighths of their product
PASSES_OF_KFAC = 3  # in units of a score: the gradient, what comes back for the factors, their sums


class Work(NamedTuple):
    """Operations: of a walker, of a pair of walkers, and of what every device does for itself."""

    walker: float
    pair: float
    cube: float  # times the third power of the number of walkers

    def of_a_device(self, n_walkers: int, n_devices: int) -> float:
        """Where walkers and their pairs are shared evenly."""
        shared = self.walker * n_walkers + self.pair * n_walkers**2
        return shared / n_devices + self.cube * n_walkers**3


def work(calculation: Calculation, spec: JobSpec) -> Work:
    """Of a training step."""
    vmc, state = calculation.vmc, calculation.initial_state()
    log_psi = log_modulus(vmc.psi, vmc.nuclei)
    params, r = jax.tree.map(lambda leaf: leaf[0], (state.params, state.chain.r))
    one, key = r[0], jax.random.key(0)

    def operations(fn: Any) -> float:
        found: Any = jax.jit(fn).lower(params, one).cost_analysis()
        return found["flops"]

    forward = operations(log_psi)
    energy = operations(lambda p, r: vmc.hamiltonian.local_energy(vmc.psi, p, r, vmc.nuclei, key))
    score = operations(jax.grad(log_psi))
    # Moves, the place they start from, and a look at whether the update is borne.
    of_walker = (vmc.moves.number + vmc.moves.with_jump + 2) * forward + energy
    if spec.optimizer.kind == "kfac":
        return Work(of_walker + PASSES_OF_KFAC * score, 0.0, 0.0)
    gradient = split_gradient(log_psi, params, one)
    rest, factors = gradient.evaluate(params, one)
    of_pair, of_rounds = UPPER * sum(leaf.size for leaf in rest), 0.0
    for kernel, factor in zip(gradient.kernels, factors, strict=True):
        (left, right), n_rows = kernel.shape, len(factor.a)
        by_rows = n_rows**2 * (left + right + SUM_COST)
        of_pair += min(2.0 * by_rows, UPPER * left * right)
        of_rounds += 4.0 * n_rows * left * right * ROUNDS
    return Work(of_walker + score + of_rounds, of_pair, 1 / 3)


def said(calculation: Calculation, n_own: int, n_devices: int) -> list[Collective]:
    """In a training step, by devices with so many walkers each."""
    state = calculation.initial_state()
    many = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((1, n_own, *x.shape[2:]), x.dtype),
        {"r": state.chain.r, "age": state.chain.age},
    )
    state = state._replace(chain=state.chain._replace(**many))
    with patch.object(devices, "pmap", lambda fn, donate_argnums=(): Tracing(fn, n_devices)):
        found: Any = calculation.step_of(Phase.TRAIN)(state, jnp.asarray(0))[0]
    return found


def row(calculation: Calculation, operations: Work, n_walkers: int, n_devices: int) -> str:
    """What a device does, what it sends, and how long either takes at least."""
    found = said(calculation, n_walkers // n_devices, n_devices)
    sent = sum((ROUNDS if c.is_in_loop else 1) * c.sent(n_devices) for c in found)
    n = sum(ROUNDS if c.is_in_loop else 1 for c in found)
    computing = operations.of_a_device(n_walkers, n_devices) / PEAK
    link = WITHIN_A_NODE if n_devices <= A_NODE else BETWEEN_NODES
    share = (sent / link) / (computing + sent / link)
    cells = [f"{n_devices}", f"{n_walkers}", f"{1e3 * computing:.2f}", f"{sent / 1e6:.1f}"]
    cells += [f"{n}", f"{1e3 * sent / link:.2f}", f"{share:.2f}"]
    return " | ".join(cells)


def main() -> None:
    """A row for each optimizer and number of GPUs, the walkers shared or so many for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", default="n2", choices=SYSTEMS)
    parser.add_argument("--ansatz", default="ferminet", choices=NETWORKS)
    parser.add_argument("--walkers", type=int, default=4096)
    parser.add_argument("--gpus", nargs="+", type=int, default=[8, 64, 512])
    options = parser.parse_args()
    atoms = json.dumps([list(atom) for atom in SYSTEMS[options.system]])
    network = {"ansatz": options.ansatz, "network": NETWORKS[options.ansatz]}
    for optimizer in ("spring", "kfac"):
        text = SPEC.format(atoms=atoms, optimizer=optimizer, walkers=2, **network)
        (point,) = parse_spec(text, "size.toml").points
        calculation = build(point.spec)
        operations = work(calculation, point.spec)
        shared = [(n, options.walkers) for n in options.gpus]
        grown = [(n, options.walkers * n // options.gpus[0]) for n in options.gpus[1:]]
        for n, n_walkers in shared + grown:
            print(f"| {optimizer} | {row(calculation, operations, n_walkers, n)} |", flush=True)


if __name__ == "__main__":
    main()
