"""A training step against its floor: the sum of what it cannot do without, each timed alone.

    python -m tests.benchmarks.step jobs/lih.toml --walkers 256 --rounds 30

The step itself moves on, from the spec's own start, so that its parameters are trained ones. What
the floor is made of, `tests.benchmarks.parts` says.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.optimizers import begin
from tests.benchmarks.parts import time_step
from vmcjob.run.calculation import build, configure_jax
from vmcjob.spec import JobSpec, read_spec
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState
from vmcjob.vmc.loop import Vmc


def placed(vmc: Vmc, start: LoopState) -> LoopState:
    """On all devices, parameters and walkers from the host, with an optimizer without a past."""
    average = None if vmc.average_from is None else start.params
    memory = vmc.optimizer.init(start.params)
    params, memory, average = devices.replicate((start.params, memory, average))
    chain = ChainState(devices.shard(start.chain.r), devices.replicate(start.chain.width))
    return LoopState(params, memory, chain, average)


def prepared(job: Path, n_walkers: int | None = None) -> JobSpec:
    """The job with a start as short as will do, and other walkers where that is asked for."""
    spec = read_spec(job).points[0].spec
    sampler = replace(spec.sampler, walkers=n_walkers or spec.sampler.walkers)
    return replace(spec, sampler=sampler, pretrain=replace(spec.pretrain, steps=100))


def main() -> None:
    """Print the table, and write it as JSON where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--walkers", type=int, help="other than in the job")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="where to write the seconds to")
    options = parser.parse_args()
    spec = prepared(options.job, options.walkers)
    configure_jax(spec.numerics)
    vmc = build(spec).vmc
    times = time_step(vmc, placed(vmc, begin(spec)), 0, options.rounds)
    named = times.parts | {"step": times.step, "floor": times.floor}
    for name, s in named.items():
        print(f"{name:20} {s / times.one_pass:8.1f}")
    print(f"{'step / floor':20} {times.step / times.floor:8.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(named | {"pass": times.one_pass}, indent=2) + "\n")


if __name__ == "__main__":
    main()
