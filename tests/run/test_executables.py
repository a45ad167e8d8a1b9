"""Programs kept whole: they are found again for what they were made for, and for nothing else."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.run.harness import HELIUM, PROGRAM, assert_same, finish, make_run, results, start
from vmcjob.protocol import JAX_CACHE
from vmcjob.run import executables
from vmcjob.run.calculation import build, make_system
from vmcjob.run.executables import SUFFIX, identity
from vmcjob.run.programs import SHORTEST
from vmcjob.run.rollback import FIRST_TRY, Cause, RetryPolicy, Rollback
from vmcjob.rundir import Phase as Recorded
from vmcjob.spec import JobSpec, parse_spec
from vmcjob.vmc.hartree_fock import solve
from vmcjob.vmc.loop import StepOfPhase
from vmcjob.vmc.phases import Phase

STRETCHED = """
name = "{name}"
seed = {seed}
[system]
atoms = [["Li", 0.0, 0.0, 0.0], ["H", 0.0, {tilt}, {distance}]]
[ansatz]
kind = "{ansatz}"
determinants = 2
[sampler]
walkers = 4
steps = 2
[optimizer]
kind = "{optimizer}"
[pretrain]
basis = "sto-3g"
steps = 5
[train]
steps = 20
[evaluate]
steps = 20
observables = ["components", "dipole", "r2"]
[output]
snapshots = {snapshots}
"""

UNTRACED = """
from vmcjob.vmc.loop import StepOfPhase
def lower(step, state):
    raise AssertionError(f"{step.name} is traced")
StepOfPhase.lower = lower
from vmcjob.__main__ import main
main()
"""


OF_ONE_MATRIX = {"lapack_spotrf_ffi", "lapack_strsm_ffi"}
"""What is called for the Gram matrix of a batch."""


def read(text: str) -> JobSpec:
    """The only point of a spec."""
    return parse_spec(text, "test.toml").points[0].spec


def spec_of(
    name: str = "one",
    *,
    ansatz: str = "ferminet",
    optimizer: str = "spring",
    seed: int = 0,
    distance: float = 3.0,
    tilt: float = 0.0,
    snapshots: int = 0,
) -> JobSpec:
    """Lithium hydride, as small as can be."""
    return read(
        STRETCHED.format(
            name=name,
            ansatz=ansatz,
            optimizer=optimizer,
            seed=seed,
            distance=distance,
            tilt=tilt,
            snapshots=snapshots,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ansatz", "optimizer"),
    [("ferminet", "spring"), ("psiformer", "lamb"), ("slater-jastrow", "sr")],
)
def test_programs_of_one_identity_have_one_text(ansatz: str, optimizer: str) -> None:
    """Elsewhere, with other random numbers and under another name: all of it is an argument.

    Of K-FAC's program no two texts are alike: its zeros come in any order.
    """
    some = spec_of(ansatz=ansatz, optimizer=optimizer)
    other = spec_of(
        "other", ansatz=ansatz, optimizer=optimizer, seed=7, distance=7.0, tilt=0.3, snapshots=2
    )
    assert identity(some, FIRST_TRY) == identity(other, FIRST_TRY)
    texts = [_texts(spec) for spec in (some, other)]
    assert texts[0].keys() == set(Phase)
    for phase in Phase:
        assert texts[0][phase] == texts[1][phase], phase
        # With more of LAPACK, for many matrices at once, `startup` would have to ask for threads.
        assert set(re.findall(r"@(lapack_\w+)", texts[0][phase])) <= OF_ONE_MATRIX


def _texts(spec: JobSpec) -> dict[Phase, str]:
    """Of the programs of all phases, as they are compiled."""
    calculation = build(spec, solve(make_system(spec.system), spec.pretrain.basis))
    first = calculation.initial_state()
    later = calculation.after_pretraining(first)
    found = {}
    for phase in Phase:
        step = calculation.step_of(phase)
        assert isinstance(step, StepOfPhase)
        found[phase] = step.lower(first if phase is Phase.PRETRAIN else later).as_text()
    return found


def test_whatever_else_is_asked_for_makes_another_identity(tmp_path: Path, monkeypatch) -> None:
    spec = spec_of()
    rollback = Rollback(Cause.NOT_FINITE, Recorded.TRAIN, 5, Recorded.TRAIN, 3)
    found = [
        identity(spec, FIRST_TRY),
        identity(spec, RetryPolicy.after([rollback])),
        identity(replace(spec, system=replace(spec.system, charge=1, spin=1)), FIRST_TRY),
        identity(replace(spec, sampler=replace(spec.sampler, steps=3)), FIRST_TRY),
        identity(replace(spec, train=replace(spec.train, steps=21)), FIRST_TRY),
        identity(replace(spec, optimizer=replace(spec.optimizer, damping=0.5)), FIRST_TRY),
        identity(replace(spec, numerics=replace(spec.numerics, dtype="float64")), FIRST_TRY),
        identity(spec_of(ansatz="psiformer"), FIRST_TRY),
        *(identity(spec_of(optimizer="kfac", seed=seed), FIRST_TRY) for seed in (0, 1)),
    ]
    for change in _changed_surroundings(tmp_path, monkeypatch):
        executables._surroundings.cache_clear()
        found.append(identity(spec, FIRST_TRY))
        change.undo()
    executables._surroundings.cache_clear()
    assert len(set(found)) == len(found)
    assert identity(spec, FIRST_TRY) == found[0]


def _changed_surroundings(tmp_path: Path, monkeypatch) -> Iterator[pytest.MonkeyPatch]:
    """Other sources, another release, other words for XLA and for JAX; one after the other."""
    (tmp_path / "source.py").write_text("1 + 1")
    monkeypatch.setattr(executables, "SOURCES", tmp_path)
    yield monkeypatch
    monkeypatch.setattr(executables, "versions", lambda: {"jax": "another"})
    yield monkeypatch
    for flags in ("false", "true"):
        (tmp_path / "flags").write_text(f"--xla_cpu_enable_fast_math={flags}")
        monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags"))
        yield monkeypatch
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    yield monkeypatch
    monkeypatch.setattr(executables, "processor", lambda: "another")
    yield monkeypatch
    (tmp_path / "pyscf.py").write_text("NORMALIZE_GTO = False")
    monkeypatch.setenv("PYSCF_CONFIG_FILE", str(tmp_path / "pyscf.py"))
    yield monkeypatch
    jax.config.update("jax_debug_infs", True)
    yield monkeypatch
    jax.config.update("jax_debug_infs", False)


def test_what_steps_are_given_is_part_of_a_programs_name() -> None:
    """CASSCF finds as many determinants as there are, at each geometry."""
    names = {
        executables._name("one", "pretrain", (np.zeros(shape, dtype),))
        for shape in ((4, 3), (5, 3))
        for dtype in (np.float32, np.float64)
    }
    assert len(names) == 4


@pytest.fixture
def cache(tmp_path: Path, monkeypatch) -> Path:
    """Of JAX, for the workers of one test."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv(JAX_CACHE, str(folder))
    monkeypatch.setenv(SHORTEST, "0")
    return folder


def kept(folder: Path) -> list[Path]:
    """Programs that are kept whole."""
    return sorted(folder.glob(f"*{SUFFIX}"))


FITTED = HELIUM.replace("[pretrain]\nsteps = 0", '[pretrain]\nbasis = "sto-3g"\nsteps = 5')


def run(
    root: Path, text: str = FITTED, program: Sequence[str] = PROGRAM
) -> Mapping[str, np.ndarray]:
    """What a worker leaves that ends well."""
    made = make_run(root, text)
    code, log = finish(start(made, program=program))
    assert code == 0, log
    return results(made)


@pytest.mark.slow
def test_a_second_start_traces_nothing_and_computes_the_same(tmp_path: Path, cache: Path) -> None:
    first = run(tmp_path / "first")
    found = {path.name.split("-")[0] for path in kept(cache)}
    assert found == {"begin", "pretrain", "sample", "train", "measure"}
    assert_same(first, run(tmp_path / "second", program=("-c", UNTRACED, "run")))
    seed = f"seed = 3\n{FITTED}"
    run(tmp_path / "other", seed, program=("-c", UNTRACED, "run"))
    longer = FITTED.replace("steps = 60\nwarmup", "steps = 61\nwarmup")
    with pytest.raises(AssertionError, match="is traced"):
        run(tmp_path / "longer", longer, program=("-c", UNTRACED, "run"))


@pytest.mark.slow
def test_what_jax_has_found_in_its_cache_is_not_kept_for_xla_would_lose_a_part_of_it(
    tmp_path: Path, cache: Path
) -> None:
    first = run(tmp_path / "first")
    for path in kept(cache):
        path.unlink()
    assert_same(first, run(tmp_path / "second"))
    assert kept(cache) == []


@pytest.mark.slow
def test_a_damaged_one_is_compiled_again(tmp_path: Path, cache: Path) -> None:
    first = run(tmp_path / "first")
    paths = kept(cache)
    for number, path in enumerate(paths):
        data = bytearray(path.read_bytes())
        if number % 2:
            data[len(data) // 2] ^= 1
        else:
            del data[len(data) // 2 :]
        path.write_bytes(data)
    for path in cache.glob("*-cache"):
        path.unlink()
    assert_same(first, run(tmp_path / "second"))
    run(tmp_path / "third", program=("-c", UNTRACED, "run"))


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    program = jax.jit(lambda x: x + 1.0).lower(1.0).compile()
    executables._write(tmp_path / "absent" / "one", program)
    (tmp_path / "folder").mkdir()
    executables._write(tmp_path / "folder", program)  # in its place there is a folder
    assert os.listdir(tmp_path) == ["folder"]
    executables._write(tmp_path / "one", program)
    found = executables._read(tmp_path / "one")
    assert found is not None
    assert found(1.0) == 2.0
    (tmp_path / "one").rename(tmp_path / "two")  # it is under another's name then
    assert executables._read(tmp_path / "two") is None
