"""A run that begins with Hartree–Fock: what it keeps, and that stopping it changes nothing."""

import signal
from pathlib import Path

import pytest
import xarray

from tests.run.harness import (
    HELIUM,
    assert_same,
    finish,
    make_run,
    results,
    signal_when,
    start,
)
from vmcjob.rundir import Phase, RunDir
from vmcjob.store import RunStore

SPEC = HELIUM.replace("[pretrain]\nsteps = 0", '[pretrain]\nsteps = 400\nbasis = "6-31g"').replace(
    'kind = "sr"\ncg_iterations = 3', 'kind = "spring"'
)
HELIUM_6_31G = -2.855160  # hartree, RHF; NIST CCCBDB


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """One run from beginning to end."""
    run = make_run(tmp_path_factory.mktemp("undisturbed"), SPEC)
    code, log = finish(start(run))
    assert code == 0, log
    assert "Hartree-Fock, RHF/6-31g: -2.85516" in log
    return run


def test_the_hartree_fock_start_is_in_the_store(undisturbed: RunDir) -> None:
    """Energy and orbitals, for us and for xarray."""
    found = RunStore.open(undisturbed.store_path).hartree_fock()
    assert found is not None
    assert found.attributes["energy"] == pytest.approx(HELIUM_6_31G, abs=1e-5)
    assert {spin: c.shape for spin, c in found.orbitals.items()} == {"up": (2, 1), "down": (2, 1)}
    group = xarray.open_zarr(undisturbed.store_path, group="hartree_fock", consolidated=False)
    assert group.attrs["method"] == "rhf"
    assert group["up"].dims == ("basis", "orbital_up")


def is_at(run: RunDir, phase: Phase, step: int) -> bool:
    """Whether a run is in a phase and has a checkpoint of it."""
    beat = run.read_heartbeat()
    is_there = beat is not None and beat.phase is phase and beat.step >= step
    return is_there and RunStore.open(run.store_path).checkpoint() is not None


@pytest.mark.parametrize(("phase", "step"), [(Phase.PRETRAIN, 20), (Phase.TRAIN, 5)])
def test_a_killed_run_resumes_to_the_same_bits(
    phase: Phase, step: int, undisturbed: RunDir, tmp_path: Path
) -> None:
    """Catches a second, slightly different Hartree–Fock, or an optimizer carried over."""
    run = make_run(tmp_path, SPEC)
    assert signal_when(start(run), signal.SIGKILL, lambda: is_at(run, phase, step)) == -9
    code, log = finish(start(run))
    assert code == 0, log
    assert "Hartree-Fock" not in log
    assert_same(results(run), results(undisturbed))
