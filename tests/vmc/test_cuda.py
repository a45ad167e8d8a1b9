"""Every program of a run, lowered for CUDA where there is no GPU: what it calls, in which types.

What is lowered is all that XLA gets; only its own choice of kernels is left to the GPU.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from vmcjob import spec as jobspec
from vmcjob.run.calculation import build, make_system
from vmcjob.vmc import devices
from vmcjob.vmc.hartree_fock import solve
from vmcjob.vmc.phases import Phase

N_GPUS = 4
ON_THE_GPU = {"cusolver_getrf_ffi", "cusolver_potrf_ffi", "cu_lu_pivots_to_permutation"}
"""Factorisations of determinants and of Gram matrices; everything else XLA compiles itself."""

NETWORKS = {
    "ferminet": "layers = 2\none_electron_width = 8\ntwo_electron_width = 4",
    "psiformer": "layers = 1\nheads = 2\nhead_width = 4\nmlp_width = 8",
    "slater-jastrow": "",
}
SPEC = """
name = "lih"
[system]
atoms = [["Li", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 3.015]]
[ansatz]
kind = "{ansatz}"
determinants = 2
{network}
[optimizer]
kind = "{optimizer}"
[sampler]
walkers = 16
[evaluate]
observables = ["components", "dipole", "quadrupole", "r2", "density", "pairs", "spin"]
"""


class Lowered(NamedTuple):
    """A program as it would go to the GPUs, in StableHLO's text."""

    text: str

    @property
    def calls(self) -> set[str]:
        """What it calls outside of XLA."""
        return set(re.findall(r"custom_call @([\w.$]+)", self.text))

    @property
    def has_float64(self) -> bool:
        """Whether a number of it is in double precision."""
        return re.search(r"[<x](f64|complex<f64>)[>]", self.text) is not None

    @property
    def talks_to_the_host(self) -> bool:
        """By feeds or messages; callbacks are calls."""
        return re.search(r"stablehlo\.(infeed|outfeed|send|recv)\b", self.text) is not None


class Lowering:
    """In the place of a program on all devices: it is lowered for so many GPUs instead of run."""

    def __init__(self, fn: Callable[..., Any], n_gpus: int) -> None:
        """Of one device."""
        self.fn, self.mesh = fn, AbstractMesh((n_gpus,), (devices.AXIS,))

    def __call__(self, sliced: Any, shared: Any) -> tuple[Lowered, None]:
        """What `pmap` makes of a function, by `shard_map`, as that can be lowered for others."""
        own = PartitionSpec(devices.AXIS)

        def of_one(sliced: Any, shared: Any) -> Any:
            found = self.fn(jax.tree.map(lambda x: x[0], sliced), shared)
            return jax.tree.map(lambda x: x[None], found)

        def shape(x: Any) -> jax.ShapeDtypeStruct:
            x = jnp.asarray(x)
            on_all = (self.mesh.size, *x.shape[1:])
            return jax.ShapeDtypeStruct(on_all, x.dtype, sharding=NamedSharding(self.mesh, own))

        rule = {"in_specs": (own, PartitionSpec()), "out_specs": own, "check_vma": False}
        program = jax.jit(jax.shard_map(of_one, mesh=self.mesh, **rule))
        traced = program.trace(jax.tree.map(shape, sliced), shared)
        return Lowered(traced.lower(lowering_platforms=("cuda",)).as_text()), None


def lower(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, ansatz: str, n_gpus: int, *phases: Phase
) -> Iterator[Lowered]:
    """The programs of some phases of a small calculation on so many GPUs."""
    text = SPEC.format(optimizer=optimizer, ansatz=ansatz, network=NETWORKS[ansatz])
    (point,) = jobspec.parse_spec(text, "job.toml").points
    start = None
    if Phase.PRETRAIN in phases:
        start = solve(make_system(point.spec.system), "sto-3g")
    calculation = build(point.spec, start)
    state = calculation.initial_state()
    monkeypatch.setattr(devices, "pmap", lambda fn, donate_argnums=(): Lowering(fn, n_gpus))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # CPUs have programs of their own
    for phase in phases:
        before = state if phase is Phase.PRETRAIN else calculation.after_pretraining(state)
        found: Any = calculation.step_of(phase)(before, jnp.asarray(0))[0]
        yield found


def require_of_a_gpu(program: Lowered) -> None:
    assert program.calls <= ON_THE_GPU
    assert not program.talks_to_the_host
    assert not program.has_float64


OPTIMIZERS = [options.kind for options in get_args(jobspec.Optimizer)]
EVERY = list(itertools.product(OPTIMIZERS, NETWORKS, (1, N_GPUS)))
SOME = [("spring", "slater-jastrow", N_GPUS), ("kfac", "psiformer", N_GPUS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "ansatz", "n_gpus"),
    [pytest.param(*one, marks=() if one in SOME else pytest.mark.full_matrix) for one in EVERY],
)
def test_a_training_step_needs_no_host_and_no_float64(
    monkeypatch, optimizer: str, ansatz: str, n_gpus: int
) -> None:
    (program,) = lower(monkeypatch, optimizer, ansatz, n_gpus, Phase.TRAIN)
    require_of_a_gpu(program)
    assert "cusolver_getrf_ffi" in program.calls
    has_gram = optimizer in ("spring", "minsr")
    assert ("cusolver_potrf_ffi" in program.calls) is has_gram
    assert ("all_to_all" in program.text) is has_gram


@pytest.mark.slow
def test_all_other_phases_need_no_host_and_no_float64(monkeypatch) -> None:
    """With observables; warm-up and equilibration are one program, comparison is evaluation."""
    phases = Phase.PRETRAIN, Phase.WARMUP, Phase.COMPARE, Phase.EVALUATE
    for program in lower(monkeypatch, "spring", "ferminet", N_GPUS, *phases):
        require_of_a_gpu(program)


def test_double_precision_and_foreign_calls_are_seen(float64) -> None:
    def step(x: jax.Array, shared: jax.Array) -> jax.Array:
        return jnp.linalg.eigvalsh(x) + shared

    program, _ = Lowering(step, 2)(jnp.zeros((1, 3, 3)), jnp.ones(()))
    assert program.has_float64
    assert program.calls - ON_THE_GPU


@pytest.mark.usefixtures("on_cpus")
def test_a_callback_is_not_lowered() -> None:
    """JAX itself refuses to."""

    def step(x: jax.Array, shared: jax.Array) -> jax.Array:
        jax.debug.callback(print, x)
        return x + shared

    with pytest.raises(ValueError, match="platform"):
        Lowering(step, 2)(jnp.zeros((1, 3)), jnp.ones(()))
