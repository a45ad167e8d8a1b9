"""Runs in a notebook: the numbers of the store under their names, and a wave function that fits."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

import vmcjob
from tests.pages import blocks
from tests.runs import make_run
from tests.test_golden import CANCELLED, FINISHED, unpack
from vmcjob.columns import Axis, Column
from vmcjob.errors import NotFoundError, UsageError
from vmcjob.results import frames
from vmcjob.results.table import make_table
from vmcjob.results.units import format_energy
from vmcjob.store import Layout, RunStore
from vmcjob.store.archive import pack, remove_directory
from vmcjob.vmc.ansatz import make_psi
from vmcjob.vmc.hamiltonian import molecular_hamiltonian


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The runs root of an earlier release."""
    return unpack(tmp_path).runs


@pytest.fixture
def double() -> Iterator[None]:
    """JAX in double precision, as these runs were computed."""
    with jax.enable_x64(True):
        yield


def test_series_have_the_numbers_and_units_of_the_store(runs: Path) -> None:
    """What any Zarr reader finds there, read by another path."""
    run = vmcjob.open_run(runs / FINISHED)
    for name, found in {"train": run.train, "evaluate": run.evaluate}.items():
        path = runs / FINISHED / "run.zarr"
        with xarray.open_zarr(path, group=name, consolidated=False) as expected:
            for column in ("energy", "variance", "acceptance", "wall_time"):
                np.testing.assert_array_equal(found[column], expected[column])
                assert found[column].attrs["units"] == expected[column].attrs["units"]
                assert found[column].attrs["long_name"]
            np.testing.assert_array_equal(found.step, expected.step)
    assert run.evaluate.energy.attrs["units"] == "hartree"
    assert run.evaluate.attrs["run_id"] == run.run_id == FINISHED
    assert run.energy.mean == pytest.approx(float(run.evaluate.energy.mean()))


def test_a_run_that_goes_on_shows_what_was_committed(runs: Path) -> None:
    """And no NaN of steps to come."""
    run = vmcjob.open_run(runs / CANCELLED)
    assert len(run.train.step) == 8
    assert bool(np.isfinite(run.train.energy).all())
    assert len(run.evaluate.step) == 0


def test_a_relative_width_is_no_length(runs: Path) -> None:
    """Of scaled moves the store says bohr; the spec says which moves they are."""
    run = vmcjob.open_run(runs / FINISHED)
    assert run.spec.sampler.proposal == "plain"
    assert run.train.width.attrs["units"] == "bohr"
    again = vmcjob.open_run(runs / FINISHED)
    sampler = replace(run.spec.sampler, proposal="scaled")
    again.spec = replace(run.spec, sampler=sampler)
    assert again.train.width.attrs["units"] == "1"


def test_walkers_know_their_electrons(runs: Path) -> None:
    walkers = vmcjob.open_run(runs / FINISHED).walkers
    assert walkers.r.dims == ("snapshot", "walker", "electron", "xyz")
    assert walkers.r.sel(electron=walkers.spin == "up", xyz="z").shape == (2, 16, 1)
    assert walkers.step.values.tolist() == [10, 20]
    assert walkers.r.attrs["units"] == "bohr"


def test_the_tree_has_all_groups(runs: Path) -> None:
    tree = vmcjob.open_run(runs / FINISHED).tree
    assert list(tree.children) == ["train", "evaluate", "observed", "walkers"]


def test_an_archived_run_is_opened_as_before(runs: Path) -> None:
    before = vmcjob.open_run(runs / FINISHED).tree
    pack(runs / FINISHED / "run.zarr", FINISHED)
    remove_directory(runs / FINISHED / "run.zarr")
    xarray.testing.assert_identical(vmcjob.open_run(runs / FINISHED).tree, before)


@pytest.mark.slow
def test_the_wave_function_has_the_energy_that_the_run_measured(runs: Path, double: None) -> None:
    """Its local energies at the last snapshot are those of that step of the evaluation.

    So parameters, nuclei and spins are all where they belong: any mistake shows in the third digit.
    """
    run = vmcjob.open_run(runs / FINISHED)
    psi = run.wave_function()
    energy = partial(
        molecular_hamiltonian().local_energy, make_psi(psi.module), psi.params, nuclei=psi.nuclei
    )
    snapshot = run.walkers.isel(snapshot=-1)
    energies = jax.jit(jax.vmap(lambda r: energy(r, key=jax.random.key(0)).total))
    e_loc = energies(snapshot.r.values)
    expected = run.evaluate.energy.sel(step=int(snapshot.step))
    np.testing.assert_allclose(np.mean(e_loc), expected, rtol=1e-9)
    found = psi(run.walkers.r.values)
    assert found.log_abs.shape == found.phase.shape == (2, 16)
    one = psi(snapshot.r.values[3])
    np.testing.assert_allclose(one.log_abs, found.log_abs[-1, 3], rtol=1e-12)
    assert set(np.unique(found.phase)) <= {-1.0, 1.0}
    with pytest.raises(ValueError, match=r"expected positions of shape \(…, 2, 3\)"):
        psi(np.zeros((3, 3)))


def test_a_wave_function_in_less_precision_is_refused(runs: Path) -> None:
    """Rather than evaluated with other digits."""
    with pytest.raises(UsageError, match="jax_enable_x64"):
        vmcjob.open_run(runs / FINISHED).wave_function()


def test_runs_are_opened_by_a_glob(runs: Path) -> None:
    found = vmcjob.open_runs(runs / "spring*")
    assert {run.run_id for run in found} == {FINISHED, CANCELLED}
    with pytest.raises(NotFoundError, match="matches no run"):
        vmcjob.open_runs(runs / "nothing*")


def test_runs_are_opened_by_name_and_listed_along_their_sweep(tmp_path: Path) -> None:
    """Run ids end in hashes: sorted by them, R = 2.0 comes before R = 1.4, and 10.0 before 9.0."""
    for mark, seed, distance in (("0", 0, 10.0), ("1", 1, 9.0), ("2", 0, 9.0), ("3", 0, "far")):
        run_id = f"h2-{mark * 10}"
        run = make_run(tmp_path, run_id, seed=seed, point={"R": distance})
        layout = Layout(n_train=1, n_evaluate=1, n_walkers=2, n_electrons=2, n_snapshots=0)
        RunStore.create(run.store_path, run_id=run_id, spec_text="", provenance={}, layout=layout)
    found = [run.run_id[-1] for run in vmcjob.open_runs(tmp_path / "*")]
    assert found == ["2", "1", "0", "3"]
    assert vmcjob.open_run("h2 R=10.0", runs=tmp_path).run_id == "h2-0000000000"
    with pytest.raises(UsageError, match=r"'h2 R=9\.0' names 2 runs: h2-1111111111, h2-2222222222"):
        vmcjob.open_run("h2 R=9.0", runs=tmp_path)
    with pytest.raises(NotFoundError, match="no run matches 'h3'"):
        vmcjob.open_run("h3", runs=tmp_path)


def test_a_table_becomes_a_frame_and_a_dataset(runs: Path) -> None:
    """The numbers of the table for people, with every digit, and their units."""
    table = vmcjob.aggregate("spring*", runs=runs)
    frame, dataset = table.to_dataframe(), table.to_dataset()
    assert frame.columns[:4].tolist() == ["name", "runs", "n_steps", "energy"]
    assert frame.energy[0] == dataset.energy.values[0] == table.rows[0].energy
    assert dataset.energy.attrs["units"] == "hartree"
    assert dataset.row.values.tolist() == ["spring"]
    assert np.isnan(dataset.reference.values[0])
    assert [one.run_id for one in table.excluded] == [CANCELLED]
    assert make_table([]).to_dataframe().empty


def test_a_table_is_shown_as_a_table(runs: Path) -> None:
    """The main columns with errors in the last digits, not every field of every row."""
    table = vmcjob.aggregate("spring*", runs=runs)
    (row,) = table.rows
    energy = format_energy(row.energy, row.error)
    assert f'<td data-title="energy, hartree">{energy}</td>' in table._repr_html_()
    assert "1 runs left out" in table._repr_html_()
    assert f"spring {energy} 1 {row.verdict}" in repr(table)
    assert len(repr(table)) < 500


def test_what_is_not_installed_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pandas, which is not installed: pip install 'vmcjob"):
        frames.to_dataframe({})


@pytest.mark.slow
def test_the_programs_of_the_page_run(runs: Path) -> None:
    """As printed there, in a process of their own, on a run of ours."""
    programs = [one for one in blocks("python") if one.comment.startswith("run: ")]
    assert len(programs) == 2
    text = "".join(one.code for one in programs)
    program = text.replace("h2-1a2b3c4d5e", FINISHED).replace("h2*", "spring*")
    precision = 'import jax\njax.config.update("jax_enable_x64", True)\n'
    done = subprocess.run(
        [sys.executable, "-c", precision + program],
        cwd=runs.parent,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


def test_axes_of_one_name_and_several_lengths_are_told_apart() -> None:
    """As stores of before have them: three fields of one observable, and two of another."""
    columns = {
        name: Column("1", name, (Axis("xyz", 3), Axis("field", length)))
        for name, length in {"a": 3, "b": 2}.items()
    }
    arrays = {name: np.zeros((4, *column.shape)) for name, column in columns.items()}
    found = frames.to_labelled(columns, arrays | {"step": np.arange(4)}, {})
    assert dict(found.sizes) == {"step": 4, "xyz": 3, "a_field": 3, "b_field": 2}
