"""The training step is compiled while an earlier phase is at work."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import current_thread
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

from tests.run.harness import HELIUM, make_run, signal_when, start
from vmcjob.run import ahead
from vmcjob.run.ahead import Steps
from vmcjob.run.calculation import build, make_system
from vmcjob.run.rollback import RetryPolicy
from vmcjob.spec import JobSpec, parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.hartree_fock import solve
from vmcjob.vmc.phases import Calculation, Phase
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.steps import Step

COMPILATION = "/jax/core/compile/backend_compile_duration"


def read(text: str) -> JobSpec:
    """The only point of a spec."""
    return parse_spec(text, "test.toml").points[0].spec


@contextmanager
def compilations_of(thread: str) -> Iterator[list[str]]:
    """The programs that a thread compiles meanwhile, or loads from JAX's cache."""
    found: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs
        if event == COMPILATION and current_thread().name == thread:
            found.append(str(kwargs.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def whole(programs: list[str]) -> list[str]:
    """Those of steps; what is computed between them is compiled for itself."""
    return [name for name in programs if name == "jit(_fun)"]


@pytest.fixture(scope="module")
def pretrained() -> Calculation:
    """Helium, which begins with Hartree-Fock; its optimizer compiles in no time."""
    text = HELIUM.replace("[pretrain]\nsteps = 0", "[pretrain]\nsteps = 10")
    spec = read(text.replace('kind = "sr"\ncg_iterations = 3', 'kind = "adam"'))
    return build(spec, solve(make_system(spec.system), "sto-3g"))


def test_the_training_step_is_not_compiled_when_it_is_due(pretrained):
    state = pretrained.initial_state()
    with compilations_of("compile_0") as before:
        steps = Steps.during(pretrained, Phase.PRETRAIN, state)
        state, _ = steps.step_of(pretrained, Phase.PRETRAIN, state)(state, jnp.asarray(0))
        state = pretrained.after_pretraining(state)
        train = steps.step_of(pretrained, Phase.TRAIN, state)
    assert whole(before)
    state, _ = steps.step_of(pretrained, Phase.WARMUP, state)(state, jnp.asarray(0))
    with compilations_of("MainThread") as after:
        state, info = train(state, jnp.asarray(0))
        jax.block_until_ready(state)
    assert whole(after) == []
    assert devices.unreplicate(info).is_finite


OPTIMIZERS = "spring", "sr", "kfac", "adam", "lamb"
ANSATZE = "ferminet", "psiformer", "slater-jastrow"


ATOM = (
    '[system]\natoms = [["Li", 0.0, 0.0, 0.0]]\n[ansatz]\nkind = "{}"\n[optimizer]\nkind = "{}"\n'
)


@pytest.mark.parametrize(
    ("optimizer", "ansatz"),
    [*((each, "ferminet") for each in OPTIMIZERS), *(("spring", each) for each in ANSATZE[1:])],
)
def test_shapes_are_those_of_the_states_to_come(optimizer, ansatz):
    calculation = build(read('name = "li"\n' + ATOM.format(ansatz, optimizer)))
    state = calculation.after_pretraining(calculation.initial_state())
    assert calculation.shapes() == jax.tree.map(ahead.shape_of, state)


def test_calculations_of_one_spec_share_what_is_traced():
    """A start would trace local energies for training, and once more for evaluation."""
    first, second = build(read(HELIUM)), build(read(HELIUM))
    assert first.vmc is second.vmc
    assert build(read(HELIUM), policy=RetryPolicy(retries=1)).vmc is not first.vmc


def test_programs_are_made_before_there_is_anything_to_pretrain_to(pretrained):
    """Hartree-Fock takes a while, and what comes after it depends on the orbitals alone."""
    alone = replace(pretrained, pretraining=None, arrangements=())
    with compilations_of("compile_0") as before:
        steps = Steps.before_all(alone, {Phase.PRETRAIN, Phase.TRAIN})
        state = pretrained.initial_state()
        state, _ = steps.step_of(pretrained, Phase.PRETRAIN, state)(state, jnp.asarray(0))
        state = pretrained.after_pretraining(state)
        train = steps.step_of(pretrained, Phase.TRAIN, state)
    assert len(whole(before)) == 1  # the training step alone
    state, info = train(state, jnp.asarray(0))
    assert devices.unreplicate(info).is_finite
    assert pretrained.identity == alone.identity


def test_what_is_compiled_ahead_computes_the_same(pretrained):
    def trained(step_of: Callable[[Phase, LoopState], Step], state: LoopState) -> LoopState:
        for phase in (Phase.PRETRAIN, Phase.WARMUP, Phase.TRAIN):
            if phase is Phase.WARMUP:
                state = pretrained.after_pretraining(state)
            step = step_of(phase, state)
            for k in range(3):
                state, _ = step(state, jnp.asarray(k))
        return state

    first = pretrained.initial_state()
    steps = Steps.during(pretrained, Phase.PRETRAIN, first)
    ahead_of_time = trained(partial(steps.step_of, pretrained), first)
    none_ahead = Steps.during(pretrained, Phase.TRAIN, first)
    as_needed = trained(partial(none_ahead.step_of, pretrained), pretrained.initial_state())
    for left, right in zip(jax.tree.leaves(ahead_of_time), jax.tree.leaves(as_needed), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("current", "n_ranks", "begun"),
    [
        (Phase.PRETRAIN, 1, [Phase.TRAIN]),
        (Phase.WARMUP, 1, [Phase.TRAIN]),
        (Phase.WARMUP, 2, []),  # ranks have to compile in step
        (Phase.TRAIN, 1, []),
        (Phase.EVALUATE, 1, []),
    ],
)
def test_only_a_training_that_is_to_come_is_compiled(
    pretrained, monkeypatch, current, n_ranks, begun
):
    """A program that is not needed would take a processor from the phase at work."""
    asked = []
    counted = Counted(pretrained, asked)
    monkeypatch.setattr(ahead.ranks, "count", lambda: n_ranks)
    Steps.during(counted, current, pretrained.initial_state())  # pyright: ignore[reportArgumentType]
    assert asked == begun


@dataclass(frozen=True)
class Counted:
    """A calculation that notes whose steps are asked for, and compiles none."""

    calculation: Calculation
    asked: list[Phase]

    def after_pretraining(self, state: LoopState) -> LoopState:
        return self.calculation.after_pretraining(state)

    def step_of(self, phase: Phase) -> Any:
        self.asked.append(phase)
        return lambda state, _index: (state, None)


def test_a_program_that_cannot_be_compiled_ahead_is_met_by_the_step_itself(pretrained, monkeypatch):
    """Memory may be short beside pretraining, and enough for training alone."""

    class Failing:
        def compile(self, _options: object) -> None:
            raise MemoryError

    state = pretrained.after_pretraining(pretrained.initial_state())
    with monkeypatch.context() as patched:
        patched.setattr(ahead.StepOfPhase, "lower", lambda _step, _state: Failing())
        steps = Steps.during(pretrained, Phase.WARMUP, state)
    state, info = steps.step_of(pretrained, Phase.TRAIN, state)(state, jnp.asarray(0))
    assert devices.unreplicate(info).is_finite


def test_a_calculation_that_takes_another_s_place_has_its_own_steps(pretrained):
    """A training that ends when it is level has another schedule from then on."""
    state = pretrained.after_pretraining(pretrained.initial_state())
    steps = Steps.during(pretrained, Phase.WARMUP, state)
    vmc = replace(pretrained.vmc, moves=Moves(0))
    later = replace(pretrained, vmc=vmc, identity="another")
    step = steps.step_of(later, Phase.TRAIN, state)
    places = devices.gather(state.chain.r)
    moved, _ = step(state, jnp.asarray(0))
    np.testing.assert_array_equal(devices.gather(moved.chain.r), places)


ENDLESS = """
import sys
import threading
from pathlib import Path
from vmcjob.run.programs import COMPILER
from jax.stages import Lowered
compile = Lowered.compile
def work_elsewhere(*arguments):
    if threading.current_thread().name.startswith(COMPILER):
        Path(sys.argv[-1], "is_at_it").touch()
        threading.Event().wait()
    return compile(*arguments)
Lowered.compile = work_elsewhere
from vmcjob.__main__ import main
main()
"""


def test_a_run_that_is_stopped_waits_for_no_program(tmp_path: Path) -> None:
    """Its outcome is written: whoever begins it again must find nobody at it."""
    run = make_run(tmp_path, HELIUM.replace("[pretrain]\nsteps = 0", "[pretrain]\nsteps = 500000"))
    worker = start(run, program=("-c", ENDLESS, "run"))

    def is_at_it() -> bool:
        beat = run.read_heartbeat()
        return (run.path / "is_at_it").exists() and beat is not None and beat.phase == "pretrain"

    assert signal_when(worker, signal.SIGTERM, is_at_it) == 75
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.message.startswith("stopped by SIGTERM; continues from pretrain step")
