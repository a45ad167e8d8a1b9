"""A run that begins with Hartree–Fock: what it keeps, and that stopping it changes nothing."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from tests.run import fake
from tests.run.harness import (
    HELIUM,
    assert_same,
    finish,
    make_run,
    results,
    signal_when,
    start,
)
from tests.store import reference
from vmcjob.run import start as beginning
from vmcjob.run.calculation import build
from vmcjob.run.start import LateHartreeFock, hartree_fock_to_compare, solve_start
from vmcjob.rundir import Activity, RunDir
from vmcjob.spec import JobSpec, parse_spec
from vmcjob.store import HartreeFockRecord, RunStore
from vmcjob.vmc.hartree_fock import HartreeFock

SPEC = HELIUM.replace("[pretrain]\nsteps = 0", '[pretrain]\nsteps = 400\nbasis = "6-31g"').replace(
    'kind = "sr"\ncg_iterations = 3', 'kind = "spring"'
)
HELIUM_6_31G = -2.855160  # hartree, RHF; NIST CCCBDB


@pytest.fixture(scope="module")
def fake_start(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """One run of the fake calculation, with the orbitals of a real Hartree–Fock in its store."""
    run = make_run(tmp_path_factory.mktemp("fake"), SPEC)
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert "Hartree-Fock, RHF/6-31g: -2.85516" in log
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """One run from beginning to end."""
    run = make_run(tmp_path_factory.mktemp("undisturbed"), SPEC)
    code, log = finish(start(run))
    assert code == 0, log
    assert "Hartree-Fock, RHF/6-31g: -2.85516" in log
    return run


@pytest.mark.slow
def test_the_hartree_fock_start_is_in_the_store(fake_start: RunDir) -> None:
    """Energy and orbitals, for us and for xarray."""
    found = RunStore.open(fake_start.store_path).hartree_fock()
    assert found is not None
    assert found.attributes["energy"] == pytest.approx(HELIUM_6_31G, abs=1e-5)
    assert {spin: c.shape for spin, c in found.orbitals.items()} == {"up": (2, 1), "down": (2, 1)}
    group = xarray.open_zarr(fake_start.store_path, group="hartree_fock", consolidated=False)
    assert group.attrs["method"] == "rhf"
    assert group["up"].dims == ("basis", "orbital_up")


@pytest.mark.slow
def test_determinants_of_casscf_are_kept_and_found_again(tmp_path: Path) -> None:
    """One array of orbitals for all determinants; the attempt after a kill fits the same ones."""
    spec = SPEC.replace("[pretrain]", "[pretrain]\nactive_space = [2, 2]")
    run = make_run(tmp_path, spec.replace("determinants = 1", "determinants = 3"))
    worker, is_time = start(run, program=fake.PROGRAM), partial(is_at, run, Activity.PRETRAIN, 20)
    assert signal_when(worker, signal.SIGKILL, is_time) == -signal.SIGKILL
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert "CASSCF" not in log
    group = xarray.open_zarr(run.store_path, group="hartree_fock", consolidated=False)
    assert group["up"].dims == ("determinant", "basis", "orbital_up")
    assert group["up"].shape == (2, 2, 1)
    assert group.attrs["casscf_energy"] < group.attrs["energy"] - 0.01


def is_at(run: RunDir, phase: Activity, step: int) -> bool:
    """Whether a run is in a phase and has a checkpoint of it."""
    beat = run.read_heartbeat()
    is_there = beat is not None and beat.phase is phase and beat.step >= step
    return is_there and RunStore.open(run.store_path).checkpoint() is not None


@pytest.mark.slow
def test_a_fake_run_killed_twice_solves_hartree_fock_once(
    fake_start: RunDir, tmp_path: Path
) -> None:
    """In pretraining and in training: what is in the store is not computed again."""
    run = make_run(tmp_path, SPEC)
    for phase, step in ((Activity.PRETRAIN, 20), (Activity.TRAIN, 5)):
        worker, is_time = start(run, program=fake.PROGRAM), partial(is_at, run, phase, step)
        assert signal_when(worker, signal.SIGKILL, is_time) == -signal.SIGKILL
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert "Hartree-Fock, " not in log
    assert_same(results(run), results(fake_start))


@pytest.mark.full_matrix  # by the fake, above; training: test_worker.py
@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(undisturbed: RunDir, tmp_path: Path) -> None:
    """Catches a second, slightly different Hartree–Fock, or an optimizer carried over."""
    run = make_run(tmp_path, SPEC)
    for phase, step in ((Activity.PRETRAIN, 20), (Activity.TRAIN, 5)):
        is_time = partial(is_at, run, phase, step)
        assert signal_when(start(run), signal.SIGKILL, is_time) == -signal.SIGKILL
    code, log = finish(start(run))
    assert code == 0, log
    assert "Hartree-Fock, " not in log
    assert_same(results(run), results(undisturbed))


def test_a_run_that_does_not_begin_with_hartree_fock_is_compared_with_it() -> None:
    """Else nobody could tell that it has come to nothing."""
    record = hartree_fock_to_compare(spec_of(HELIUM))
    assert record is not None
    assert record.attributes["energy"] == pytest.approx(-2.855160, abs=1e-5)


def test_where_there_is_no_hartree_fock_a_run_goes_without(caplog) -> None:
    """No basis knows element 118, and nobody asked for one."""
    caplog.set_level("INFO", "vmcjob")
    heavy = HELIUM.replace('"He"', '"Og"')
    assert hartree_fock_to_compare(spec_of(heavy)) is None
    assert "no Hartree-Fock energy to compare with: " in caplog.text


def test_where_memory_does_not_do_for_hartree_fock_a_run_goes_without(caplog, monkeypatch) -> None:
    """A worker would take half as many walkers at a time, and that again and again."""
    caplog.set_level("INFO", "vmcjob")

    def solve_start(spec: JobSpec) -> None:
        raise MemoryError

    monkeypatch.setattr(beginning, "solve_start", solve_start)
    assert hartree_fock_to_compare(spec_of(HELIUM)) is None
    assert "no Hartree-Fock energy to compare with: out of memory" in caplog.text


def test_hartree_fock_to_compare_with_is_solved_once_there_is_something_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first rows, not before, not twice, nor by an attempt whose store has it."""
    solved = []
    record = HartreeFockRecord({"energy": -2.85}, {"up": np.ones((2, 1)), "down": np.ones((2, 1))})
    monkeypatch.setattr(beginning, "hartree_fock_to_compare", lambda spec: solved.append(record))
    store, spec = reference.create(tmp_path / "run.zarr"), spec_of(HELIUM)
    late = LateHartreeFock(spec, store)
    late.solve()
    assert not solved
    store.commit(reference.commit_number(0))
    for _ in range(2):
        late.solve()
        assert len(solved) == 1  # where there is none, nobody asks again
    monkeypatch.setattr(beginning, "hartree_fock_to_compare", lambda spec: record)
    LateHartreeFock(spec_of(SPEC), store).solve()  # it begins with one
    assert store.hartree_fock() is None
    LateHartreeFock(spec, store).solve()
    found = RunStore.open(store.path).hartree_fock()
    assert found is not None
    assert found.attributes == record.attributes
    monkeypatch.delattr(beginning, "hartree_fock_to_compare")
    LateHartreeFock(spec, store).solve()


def spec_of(text: str) -> JobSpec:
    """Its only point."""
    return parse_spec(text, "test.toml").points[0].spec


@pytest.mark.parametrize(("method", "n_arrangements"), [("half-projected", 2), ("stable", 1)])
def test_walkers_begin_where_both_partners_have_their_spins(
    method: str, n_arrangements: int
) -> None:
    """Of atoms so far apart that no move leads from one arrangement to the other."""
    text = HELIUM.replace('["He", 0.0, 0.0, 0.0]', '["H", 0, 0, 0], ["H", 0, 0, 20]')
    text = text.replace("determinants = 1", "determinants = 2")
    spec = parse_spec(text.replace("steps = 0", f'steps = 9\nmethod = "{method}"'), "h.toml")
    first = spec.points[0].spec
    record = solve_start(first)
    values: dict[str, Any] = {**record.attributes, **record.orbitals}  # as `HartreeFock` has them
    found = HartreeFock(**values)
    nuclei = [[home.nucleus for home in homes] for homes in build(first, found).arrangements]
    assert nuclei in ([[0, 1], [1, 0]][:n_arrangements], [[1, 0], [0, 1]][:n_arrangements])
