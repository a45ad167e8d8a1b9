"""Parts of the check that compute in this process: training steps, their memory, Laplacians."""

import json
import time
from argparse import Namespace
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from tests.benchmarks import laplacian as benchmark
from tests.benchmarks.growth import warmed_up
from tests.benchmarks.memory import NETWORKS, SPEC, SYSTEMS, Compiling
from tests.benchmarks.parts import Stepping
from tests.benchmarks.projection import work
from tests.benchmarks.step import placed
from tests.fwdlap.networks import hydrogen_chain
from vmcjob.errors import UsageError
from vmcjob.run.calculation import build, configure_jax
from vmcjob.spec import JobSpec, parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.kfac_layers import KfacUnavailableError
from vmcjob.vmc.phases import Phase

TINY = "layers = 1\none_electron_width = 4\ntwo_electron_width = 2"
N_WALKERS, N_WALKERS_TINY = 4096, 8
N_STEPS, N_STEPS_TINY = 20, 2
COUNTED = "spring", "kfac"  # optimizers whose operations the projection knows


def make_spec(system: str, optimizer: str, *, is_tiny: bool) -> JobSpec:
    """A FermiNet as wide as in its paper, with 16 determinants; or a tiny one."""
    text = SPEC.format(
        atoms=json.dumps([list(atom) for atom in SYSTEMS[system]]),
        ansatz="ferminet",
        network=TINY if is_tiny else NETWORKS["ferminet"],
        optimizer=optimizer,
        walkers=N_WALKERS_TINY if is_tiny else N_WALKERS,
    )
    (point,) = parse_spec(text, "size.toml").points
    return point.spec


def step(system: str, optimizer: str, *, is_tiny: bool) -> dict[str, Any]:
    """Seconds of a training step and of its first call, memory, and the operations in it.

    An optimizer that the installed JAX cannot run is named in "refused".
    """
    spec = make_spec(system, optimizer, is_tiny=is_tiny)
    configure_jax(spec.numerics)
    try:
        vmc = build(spec).vmc
    except (KfacUnavailableError, UsageError) as error:
        return {"refused": str(error)}
    stepping = Stepping(vmc, placed(vmc, warmed_up(spec)))
    first_s = _seconds(stepping)
    seconds = [_seconds(stepping) for _ in range(N_STEPS_TINY if is_tiny else N_STEPS)]
    found: dict[str, Any] = {"walkers": spec.sampler.walkers, "first_call_s": first_s}
    found |= {"step_s": float(np.median(seconds)), "fastest_s": min(seconds)}
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return found | {"peak_bytes": peak}


def _seconds(stepping: Stepping) -> float:
    """The time of one step and its report; RuntimeError where the report is not finite."""
    began = time.perf_counter()
    info: Any = jax.block_until_ready(stepping())
    seconds = time.perf_counter() - began
    if not devices.unreplicate(info).is_finite:
        raise RuntimeError("a training step came to numbers that are not finite")
    return seconds


def account(system: str, optimizer: str, *, is_tiny: bool) -> dict[str, Any]:
    """Bytes of a training step by XLA's account, and operations in it; nothing is computed."""
    spec = make_spec(system, optimizer, is_tiny=is_tiny)
    configure_jax(spec.numerics)
    try:
        calculation = build(spec)
    except (KfacUnavailableError, UsageError) as error:
        return {"refused": str(error)}
    found: dict[str, Any] = {}
    if optimizer in COUNTED:
        n_walkers = spec.sampler.walkers
        found["operations"] = work(calculation, spec).of_a_device(n_walkers, 1)
    state = calculation.initial_state()
    with patch.object(devices, "pmap", Compiling):
        program: Any = calculation.step_of(Phase.TRAIN)(state, jax.numpy.asarray(0))[0]
    memory = program.memory_analysis()
    found["given_bytes"] = memory.argument_size_in_bytes
    return found | {"temporary_bytes": memory.temp_size_in_bytes}


def laplacian(network: str, *, is_tiny: bool) -> dict[str, Any]:
    """Milliseconds of local kinetic energies by each method; folx where it is installed."""
    options = Namespace(size="paper", walkers=256, repeats=9)
    if is_tiny:
        options = Namespace(size="small", walkers=4, repeats=1)
    options.methods, options.hessian, options.floor = None, False, False
    if is_tiny:
        options.methods = ["jvp-of-grad"]
    n_electrons = 2 if is_tiny else 10
    runs = benchmark.measure(network, hydrogen_chain(n_electrons), options)
    return {"electrons": n_electrons, "ms": {name: run.ms for name, run in runs.items()}}
