"""A training step against its floor: the sum of what it cannot do without, each timed alone.

    python -m tests.benchmarks.step jobs/lih.toml --walkers 256 --rounds 30

All take turns, so that whatever else the machine does slows all of them alike. Of each the fastest
turn counts: what came in between is not its own. The floor of a natural gradient that knows its
scores is its moves, the local energies, the scores, one product for Gram's matrix and one Cholesky
factorisation with its solution, in the type of the run; of others, without the last three. The step
itself moves on, so that its parameters are trained ones.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array

from tests.benchmarks.optimizers import begin
from vmcjob.run.calculation import build, configure_jax
from vmcjob.spec import JobSpec, MinSr, Spring, read_spec
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState
from vmcjob.vmc.energy import make_local_energies
from vmcjob.vmc.loop import Vmc
from vmcjob.vmc.sampler import sample
from vmcjob.vmc.scores import score_matrix
from vmcjob.vmc.wavefunction import log_modulus

PASS, STEP = "one pass of log|psi|", "training step"
HIGHEST = jax.lax.Precision.HIGHEST


@jax.jit
def _product(scores: Array) -> Array:
    return jnp.matmul(scores, scores.T, precision=HIGHEST)


@jax.jit
def _solution(gram: Array) -> Array:
    factor = jax.scipy.linalg.cho_factor(gram + jnp.eye(len(gram), dtype=gram.dtype))
    return jax.scipy.linalg.cho_solve(factor, gram[0])


class Stepping:
    """A training that goes on whenever it is called."""

    def __init__(self, vmc: Vmc, start: LoopState) -> None:
        """From parameters and walkers on the host."""
        average = None if vmc.average_from is None else start.params
        memory = vmc.optimizer.init(start.params)
        chain = ChainState(devices.shard(start.chain.r), devices.replicate(start.chain.width))
        self.state = LoopState(*devices.replicate((start.params, memory)), chain, average)
        self.state = self.state._replace(average=devices.replicate(average))
        self._step = vmc.train_step()
        self._n_steps = 0

    def __call__(self) -> Array:
        """One step; its energy."""
        self.state, info = self._step(self.state, jnp.asarray(self._n_steps))
        self._n_steps += 1
        return info.energy


def parts(spec: JobSpec, vmc: Vmc, state: LoopState) -> dict[str, Callable[[], object]]:
    """What a step consists of, by name; on one device, of a state that stays."""
    log_psi, key = log_modulus(vmc.psi, vmc.nuclei), jax.random.key(0)
    energies = make_local_energies(vmc.hamiltonian, vmc.psi, vmc.nuclei, key)
    given = jax.tree.map(jnp.copy, (state.params, state.chain))
    programs: dict[str, Callable[..., object]] = {
        PASS: lambda params, chain: jax.vmap(log_psi, (None, 0))(params, chain.r),
        "sampling": lambda params, chain: sample(log_psi, params, key, chain, vmc.moves),
        "local energies": lambda params, chain: energies(params, chain.r),
    }
    if isinstance(spec.optimizer, Spring | MinSr):
        programs["scores"] = lambda params, chain: score_matrix(log_psi, params, chain.r)
    found = {name: _prepared(program, given) for name, program in programs.items()}
    if "scores" in found:
        scores = score_matrix(log_psi, *devices.unreplicate((given[0], given[1].r)))
        centred = (scores - scores.mean(0)) / len(scores) ** 0.5
        gram = _product(centred)
        found["Gram's product"] = lambda: _product(centred)
        found["Cholesky"] = lambda: _solution(gram)
    return found


def _prepared(program: Callable[..., object], given: tuple[object, ...]) -> Callable[[], object]:
    mapped = devices.pmap(lambda given, _: program(*given))
    return lambda: mapped(given, 0)


def fastest(
    calls: Mapping[str, Callable[[], object]],
    n_rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds of the fastest of so many turns of each, after one to compile."""
    seconds = dict.fromkeys(calls, float("inf"))
    for turn in range(n_rounds + 1):
        for name, call in calls.items():
            began = clock()
            jax.block_until_ready(call())
            if turn:
                seconds[name] = min(seconds[name], clock() - began)
    return seconds


def main() -> None:
    """Print the table, and write it as JSON where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--walkers", type=int, help="other than in the job")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="where to write the seconds to")
    options = parser.parse_args()
    spec = read_spec(options.job).points[0].spec
    sampler = replace(spec.sampler, walkers=options.walkers or spec.sampler.walkers)
    spec = replace(spec, sampler=sampler, pretrain=replace(spec.pretrain, steps=100))
    configure_jax(spec.numerics)
    vmc = build(spec).vmc
    stepping = Stepping(vmc, begin(spec))
    calls = parts(spec, vmc, stepping.state) | {STEP: stepping}
    seconds = fastest(calls, options.rounds)
    unit = seconds[PASS]
    floor = sum(s for name, s in seconds.items() if name not in (PASS, STEP))
    for name, s in seconds.items():
        print(f"{name:20} {s / unit:8.1f}")
    print(f"{'floor':20} {floor / unit:8.1f}\n{'step / floor':20} {seconds[STEP] / floor:8.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(seconds, indent=2) + "\n")


if __name__ == "__main__":
    main()
