"""The run store: it gives back what was committed, to us and to xarray, and refuses the rest."""

import threading
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

from tests.store.reference import (
    LAYOUT,
    N_COMMITS,
    ROWS,
    assert_checkpoints_equal,
    assert_holds,
    checkpoint,
    commit_number,
    create,
    go_on,
    number_committed,
    rows,
    walkers,
)
from vmcjob.errors import StoreError
from vmcjob.observables import TABLE, columns_of
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES
from vmcjob.vmc.spring import Spring


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.zarr"


@pytest.mark.parametrize("n_commits", [0, 1, 2, 6, 7, N_COMMITS])
def test_a_store_gives_back_what_was_committed(path, n_commits):
    """Through training, over the change to evaluation, to the end."""
    go_on(create(path), n_commits)
    assert_holds(path, n_commits)


def test_a_store_says_whose_it_is(path):
    """The store alone, moved anywhere, still tells which run and spec its numbers belong to."""
    create(path)
    attrs = RunStore.open(path).attrs
    assert attrs["schema_version"] == 1
    assert attrs["run_id"] == "h2-0123"
    assert attrs["spec"] == "name = 'h2'\n"
    assert len(attrs["spec_sha256"]) == 64
    assert attrs["provenance"] == {"jax": "0"}
    assert attrs["units"]["energy"] == "hartree"
    assert attrs["active_slot"] is None


def test_attributes_follow_the_commits(path):
    """The writer's own view must not lag behind what it has written."""
    store = go_on(create(path), 2)
    assert store.attrs["n_committed"]["train"] == 2 * ROWS
    assert store.attrs == RunStore.open(path).attrs


def test_a_writer_can_be_taken_over_at_any_commit(path):
    """Ten attempts of one commit each leave the same store as one attempt of ten."""
    create(path)
    for k in range(N_COMMITS):
        go_on(RunStore.open(path, "a"), k + 1)
    assert_holds(path, N_COMMITS)


def test_one_commit_may_end_training_and_begin_evaluation(path):
    """A slow flush interval covers both series at once."""
    store = create(path)
    store.commit(
        Commit(
            train=rows("train", 0, 60),
            evaluate=rows("evaluate", 0, 30),
            snapshots=[(10, walkers(10)), (20, walkers(20)), (30, walkers(30))],
            checkpoint=checkpoint("evaluate", 30),
        )
    )
    assert_holds(path, 9)


def test_a_checkpoint_without_rows_moves_the_position_only(path):
    """Equilibration before evaluation records no rows, but its progress is worth keeping."""
    store = go_on(create(path), 6)
    store.commit(Commit(checkpoint=checkpoint("equilibrate", 50)))
    reader = RunStore.open(path)
    assert reader.n_committed["train"] == 60
    restored = reader.checkpoint()
    assert restored is not None
    assert_checkpoints_equal(restored.checkpoint, checkpoint("equilibrate", 50))


@pytest.mark.parametrize(
    "layout",
    [Layout(0, 5, 2, 1, 0), Layout(5, 0, 2, 1, 3), Layout(0, 0, 2, 1, 0, dtype="float64")],
)
def test_a_run_without_training_evaluation_or_snapshots_has_a_store_too(path, layout):
    """Zero steps are allowed in a spec."""
    store = RunStore.create(path, run_id="h", spec_text="", provenance={}, layout=layout)
    store.commit(Commit(checkpoint=Checkpoint("train", 0, {"empty": np.empty((0, 3))})))
    reader = RunStore.open(path)
    assert reader.n_planned == {
        "train": layout.n_train,
        "evaluate": layout.n_evaluate,
        "snapshots": layout.n_snapshots,
    }
    restored = reader.checkpoint()
    assert restored is not None
    assert restored.checkpoint.arrays["empty"].shape == (0, 3)
    assert reader.snapshots()[1].dtype == layout.dtype


def test_one_array_of_a_checkpoint_is_read_alone(path):
    """A parameter out of millions, by name and without the rest."""
    go_on(create(path), 3)
    expected = commit_number(2).checkpoint.arrays
    store = RunStore.open(path)
    for name, array in expected.items():
        np.testing.assert_array_equal(store.read_array(name), array)
    with pytest.raises(StoreError, match="has no array 'params/nothing'"):
        store.read_array("params/nothing")


def test_a_checkpoint_larger_than_a_chunk_is_split_and_put_together(path, monkeypatch):
    """Beyond 64 MiB the buffer has several files; here the limit is lowered instead."""
    monkeypatch.setattr("vmcjob.store.slot.CHUNK_BYTES", 1000)
    big = Checkpoint("train", 1, {"a": np.arange(777.0), "b": np.arange(501.0)})
    create(path).commit(Commit(checkpoint=big))
    store = RunStore.open(path)
    restored = store.checkpoint()
    assert restored is not None
    assert_checkpoints_equal(restored.checkpoint, big)
    np.testing.assert_array_equal(store.read_array("b"), big.arrays["b"])
    assert 8 < len(list((path / "checkpoint/slot0/c").iterdir())) <= 16


def test_a_checkpoint_may_change_its_size(path):
    """A retry with another number of devices or chunks holds other arrays."""
    store = create(path)
    for size in (10, 10, 500, 500, 3, 3):
        small = Checkpoint("train", size, {"history": np.full(size, 1.5)})
        store.commit(Commit(checkpoint=small))
        restored = RunStore.open(path).checkpoint()
        assert restored is not None
        assert_checkpoints_equal(restored.checkpoint, small)


def test_arrays_keep_their_layout_through_a_checkpoint(path):
    """Views, Fortran order and scalars come back with equal values and shapes."""
    arrays = {
        "view": np.arange(20.0)[::3],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "scalar": np.array(2.5),
        "swapped": np.arange(4, dtype=">i4"),
    }
    create(path).commit(Commit(checkpoint=Checkpoint("train", 1, arrays)))
    restored = RunStore.open(path).checkpoint()
    assert restored is not None
    for name, array in arrays.items():
        found = restored.checkpoint.arrays[name]
        assert found.shape == array.shape
        assert found.flags.writeable
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("commit", "message"),
    [
        (
            Commit(train={"energy": np.ones(2)}, checkpoint=checkpoint("train", 2)),
            "train rows lack",
        ),
        (Commit(train=rows("train", 0, 61), checkpoint=checkpoint("train", 61)), "beyond"),
        (
            Commit(
                train=rows("train", 0, 2) | {"energy": np.ones(3)},
                checkpoint=checkpoint("train", 2),
            ),
            "different lengths",
        ),
        (Commit(checkpoint=Checkpoint("train", 0, {"x": np.array(["a"], object)})), "dtype object"),
    ],
)
def test_a_commit_that_does_not_fit_writes_nothing(path, commit, message):
    """A wrong call is a bug in the caller, and must not cost what is there."""
    store = create(path)
    with pytest.raises((ValueError, StoreError), match=message):
        store.commit(commit)
    assert_holds(path, 0)


def test_a_missing_store_is_said_to_be_missing(path):
    """With its path, so that a typo shows; reading must not create it either."""
    with pytest.raises(StoreError, match=r"run\.zarr: there is no store"):
        RunStore.open(path)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_what_is_no_store_is_refused(path, mode):
    """An empty folder, a foreign Zarr group and a torn metadata file, each with its path."""
    path.mkdir()
    with pytest.raises(StoreError, match="not a readable Zarr store"):
        RunStore.open(path, mode)
    zarr.create_group(path, attributes={"author": "somebody"})
    with pytest.raises(StoreError, match="not written by vmcjob"):
        RunStore.open(path, mode)
    (path / "zarr.json").write_text('{"zarr_format": 3, "no')
    with pytest.raises(StoreError, match="not a readable Zarr store"):
        RunStore.open(path, mode)


def test_a_newer_schema_is_refused_with_advice(path):
    """To guess at a newer layout would be worse than to stop."""
    create(path)
    zarr.open_group(path).attrs["schema_version"] = 2
    with pytest.raises(StoreError, match=r"newer vmcjob .*upgrade"):
        RunStore.open(path)


@pytest.mark.parametrize(
    "damage",
    [
        {"spec": "name = 'he'"},
        {"spec": None},
        {"active_slot": 5},
        {"n_committed": 7},
        {"n_committed": {"train": 1, "evaluate": "2", "snapshots": 0}},
        {"n_committed": {"train": -1, "evaluate": 0, "snapshots": 0}},
    ],
)
def test_damaged_root_attributes_are_refused(path, damage):
    """The root says how many rows count, so a wrong number there is wrong data."""
    go_on(create(path), 2)
    zarr.open_group(path).attrs.update(damage)
    with pytest.raises(StoreError, match="root attributes are damaged"):
        RunStore.open(path)


def test_the_store_of_another_run_is_refused(path):
    """A copied run directory must not be continued as if it were the new run."""
    create(path)
    with pytest.raises(StoreError, match="belongs to run h2-0123, not to he-4567"):
        RunStore.open(path, "a", run_id="he-4567")


def test_a_store_is_never_overwritten(path):
    """Creating twice is a mistake in the order of things; the first one's data stay."""
    go_on(create(path), 2)
    with pytest.raises(StoreError, match="never overwritten"):
        create(path)
    assert_holds(path, 2)


def test_reading_changes_no_file(path):
    """Status and aggregate run beside a live writer, perhaps without write permission."""
    go_on(create(path), 8)
    before = {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")}
    assert_holds(path, 8)
    assert {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")} == before


def test_a_reader_sees_the_state_at_its_opening(path):
    """One reading is one moment: lengths and rows of a reader never shift under it."""
    store = go_on(create(path), 3)
    reader = RunStore.open(path)
    store.commit(commit_number(3))
    assert reader.n_committed["train"] == 3 * ROWS
    assert len(reader.series("train")["energy"]) == 3 * ROWS
    assert_holds(path, 4)


def test_xarray_reads_labelled_data_during_and_after_the_run(path):
    """The promise to users: open_zarr, no code of ours, names, units and steps in place."""
    store = create(path)
    for count in range(1, N_COMMITS + 1):
        go_on(store, count)
        done = max(0, count * ROWS - LAYOUT.n_train)
        data = xarray.open_zarr(path, group="evaluate", consolidated=False)
        assert data.energy.dims == ("step",)
        assert data.energy.attrs["units"] == "hartree"
        assert data.variance.attrs["units"] == "hartree^2"
        np.testing.assert_array_equal(data.step, np.arange(1, LAYOUT.n_evaluate + 1))
        assert int(np.isfinite(data.energy).sum()) == done
    expected = rows("evaluate", 0, LAYOUT.n_evaluate)["energy"]
    data = xarray.open_zarr(path, group="evaluate", consolidated=False)
    np.testing.assert_array_equal(data.energy.sel(step=slice(1, 40)), expected)
    shapes = xarray.open_zarr(path, group="walkers", consolidated=False).r
    assert shapes.dims == ("snapshot", "walker", "electron", "xyz")
    assert shapes.attrs["units"] == "bohr"
    train = xarray.open_zarr(path, group="train", consolidated=False)
    assert set(train.data_vars) == set(SERIES["train"])
    assert all("units" in train[name].attrs and "long_name" in train[name].attrs for name in train)


def test_readers_beside_a_writer_never_see_half_a_commit(path):
    """Every opening sees a whole number of commits, all of their rows, and never fewer than before.

    Mutant in mind: the pointer written before the rows.
    """
    store = create(path)
    writer = threading.Thread(target=go_on, args=(store,))
    writer.start()
    seen = [0]
    while writer.is_alive() or seen[-1] < N_COMMITS:
        reader = RunStore.open(path)
        seen.append(number_committed(reader))
        for phase in ("train", "evaluate"):
            length = reader.n_committed[phase]
            expected = rows(phase, 0, length)
            for name, values in reader.series(phase).items():
                if name != "step":
                    np.testing.assert_array_equal(values, expected[name])
    writer.join()
    assert seen == sorted(seen)


def test_a_run_of_any_length_stays_below_300_files(path):
    """File systems of clusters have quotas on files, and 1000 runs make 300 times as many.

    With all observables, and the optimizer that tells the most.
    """
    n = 100_000
    every, columns = 100, columns_of(TABLE)
    layout = Layout(
        n_train=n,
        n_evaluate=n,
        n_walkers=2,
        n_electrons=1,
        n_snapshots=1000,
        more_train=Spring.columns,
        observed=columns,
        observe_every=every,
    )
    store = RunStore.create(path, run_id="h", spec_text="", provenance={}, layout=layout)
    n_observed = n // every // 2
    snapshots = [(step, np.full((2, 1, 3), step)) for step in range(1, 1001)]
    for k in range(2):  # twice, so that both slots are there
        store.commit(
            Commit(
                train={name: np.ones(n // 2) for name in layout.columns("train")},
                evaluate={name: np.ones(n // 2) for name in layout.columns("evaluate")},
                observed={
                    name: np.ones((n_observed, *column.shape)) for name, column in columns.items()
                },
                snapshots=snapshots[k * 500 : (k + 1) * 500],
                checkpoint=checkpoint("evaluate", n),
            )
        )
    n_files = sum(file.is_file() for file in path.parent.rglob("*"))
    more_for_large_checkpoints = 2 * (16 - 1)
    assert 200 < n_files < 300 - more_for_large_checkpoints
    assert RunStore.open(path).series("evaluate")["energy"].sum() == n


def test_a_commit_replaces_each_file_once_and_reads_no_metadata(path, monkeypatch):
    """What a commit costs is its files: one per column, the slot's two, the root.

    Mutant in mind: reopening arrays or slots at each commit, which doubles its time.
    """
    store = go_on(create(path), 3)
    written, read = [], []
    replace, read_bytes = Path.replace, Path.read_bytes

    def counted_replace(self: Path, target: Path) -> Path:
        written.append(target.relative_to(path))
        return replace(self, target)

    def counted_read(self: Path) -> bytes:
        read.append(self.name)
        return read_bytes(self)

    monkeypatch.setattr(Path, "replace", counted_replace)
    monkeypatch.setattr(Path, "read_bytes", counted_read)
    go_on(store, 4)
    assert len(written) == len(set(written)) == len(SERIES["train"]) + 3
    assert "zarr.json" not in read
