"""Observables in a run: measured when they are due, stored, resumed, and shown with errors."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import xarray

from tests.run.harness import (
    HELIUM,
    assert_same,
    finish,
    has_committed,
    make_run,
    results,
    signal_when,
    start,
)
from vmcjob.observables import TABLE, columns_of
from vmcjob.results.observed import quantities
from vmcjob.store import RunStore

NAMES = list(TABLE)
TEXT = HELIUM.replace(
    "[evaluate]\n", f"[evaluate]\nobservables = {json.dumps(NAMES)}\nobserve_every = 4\n"
).replace('kind = "sr"\ncg_iterations = 3', 'kind = "adam"')  # compiles in no time


@pytest.mark.slow
def test_a_run_measures_all_observables(tmp_path: Path) -> None:
    """Every fourth step of 60; nobody gets lost from a histogram; the sum of the terms is E."""
    run = make_run(tmp_path, TEXT)
    code, log = finish(start(run))
    assert code == 0, log
    store = RunStore.open(run.store_path)
    found = store.observed()
    np.testing.assert_array_equal(found["step"], np.arange(4, 61, 4))
    assert found.keys() - {"step"} == columns_of(NAMES).keys()
    for name, column in columns_of(NAMES).items():
        assert found[name].shape == (15, *column.shape)
        assert np.isfinite(found[name]).all()
    for name, count in [("density_radial", 2), ("density_axial", 2), ("pairs_radial", 1)]:
        np.testing.assert_allclose(found[name].sum(axis=1), count, rtol=1e-6)
    terms = sum(found[name] for name in ("kinetic", "v_ee", "v_en", "v_nn"))
    energies = store.series("evaluate")["energy"][found["step"] - 1]
    np.testing.assert_allclose(terms, energies, rtol=1e-4)
    with xarray.open_zarr(run.store_path, group="observe", consolidated=False) as arrays:
        assert set(arrays.data_vars) | set(arrays.coords) == found.keys()
    virial = quantities(run.store_path)["virial"].estimates[0]
    assert 0.5 < virial.mean < 4.0
    assert virial.error > 0.0
    assert sum(1 for path in run.store_path.rglob("*") if path.is_file()) < 300


@pytest.mark.full_matrix  # its keys: vmc/test_walker_keys.py
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_run_with_a_core_potential_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    """Kills fall anywhere between two observations, in training and in evaluation; no bit changes.

    Catches rotations of the potential's quadrature that depend on more than seed, step and walker.
    """
    text = TEXT.replace(json.dumps(NAMES), '["components", "r2", "forces"]')
    text = text.replace('["He", 0.0, 0.0, 0.0]]', '["Be", 0.0, 0.0, 0.0]]\necp = "ccecp"')
    run, other = make_run(tmp_path / "one", text), make_run(tmp_path / "two", text)
    for phase in ("train", "evaluate"):
        code = signal_when(start(run), signal.SIGKILL, has_committed(run, phase, 5))
        assert code == -signal.SIGKILL
    for each in (run, other):
        code, log = finish(start(each))
        assert code == 0, log
    assert_same(results(run), results(other))
    found, expected = (RunStore.open(each.store_path).observed() for each in (run, other))
    assert {"ecp_local", "ecp_nonlocal"} < found.keys()
    assert_same(found, expected)
