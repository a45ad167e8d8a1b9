"""Bits that flip and files that vanish are found out; intact data next to them stay in use."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.store.reference import (
    N_COMMITS,
    assert_checkpoints_equal,
    assert_holds,
    assert_series_hold,
    commit_number,
    create,
    go_on,
    number_committed,
    rows,
)
from vmcjob.errors import StoreError
from vmcjob.results.table import RunResult, make_table
from vmcjob.store import Checkpoint, Commit, HartreeFockRecord, Layout, RunStore
from vmcjob.store.layout import SERIES
from vmcjob.store.peek import CURE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.zarr"


def flip(file: Path, bit: int) -> None:
    """Turn one bit of a file around."""
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def slot_file(path: Path, commit: int, name: str) -> Path:
    """A file of the slot that holds this commit; the first one went into slot 0."""
    return path / f"checkpoint/slot{commit % 2}" / name


def offsets(commit: int) -> dict[str, int]:
    """Where each array of a checkpoint begins, were they laid end to end."""
    sizes = {name: array.nbytes for name, array in commit_number(commit).checkpoint.arrays.items()}
    starts = np.cumsum([0, *sizes.values()])
    return dict(zip(sizes, (int(start) for start in starts), strict=False))


@pytest.mark.parametrize(
    ("name", "newest"),
    [
        pytest.param(name, newest, marks=() if newest == 4 + k % 2 else pytest.mark.full_matrix)
        for k, name in enumerate(offsets(0))
        for newest in (4, 5)
    ],
)
def test_a_flipped_bit_in_any_array_falls_back_to_the_other_slot(path, name, newest):
    """Detected in every array of either slot, by name, and the step to go on from is said."""
    go_on(create(path), newest + 1)
    flip(slot_file(path, newest, "c/0"), 8 * offsets(newest)[name])
    store = RunStore.open(path)
    with pytest.raises(StoreError, match=f"checksum of {name} does not match"):
        store.read_array(name)
    restored = store.checkpoint()
    assert restored is not None
    assert_checkpoints_equal(restored.checkpoint, commit_number(newest - 1).checkpoint)
    assert restored.warning is not None
    assert f"slot {newest % 2} is damaged (the checksum of {name}" in restored.warning
    assert f"train step {10 * newest}" in restored.warning


def test_no_byte_of_a_checkpoint_is_unguarded(path):
    """Each byte in turn: a gap between two checksums would be a place for silent damage."""
    go_on(create(path), 2)
    file = slot_file(path, 1, "c/0")
    for byte in range(file.stat().st_size):
        flip(file, 8 * byte + byte % 8)
        restored = RunStore.open(path).checkpoint()
        assert restored is not None
        assert restored.warning is not None
        flip(file, 8 * byte + byte % 8)
    assert_holds(path, 2)


@pytest.mark.parametrize("newest", [4, 5])
def test_a_flipped_bit_in_any_chunk_of_a_large_checkpoint_falls_back(path, monkeypatch, newest):
    """Checkpoints beyond 64 MiB have several files, each of which can rot; here the limit is lower.

    Mutant in mind: checksums of the first chunk only.
    """
    monkeypatch.setattr("vmcjob.store.slot.CHUNK_BYTES", 32)
    go_on(create(path), newest + 1)
    chunks = sorted((path / f"checkpoint/slot{newest % 2}/c").iterdir())
    assert len(chunks) == 8
    rng = random.Random(newest)
    for chunk in chunks:
        bit = rng.randrange(8 * chunk.stat().st_size)
        flip(chunk, bit)
        restored = RunStore.open(path).checkpoint()
        assert restored is not None
        assert restored.warning is not None
        assert_checkpoints_equal(restored.checkpoint, commit_number(newest - 1).checkpoint)
        flip(chunk, bit)
    assert_holds(path, newest + 1)


def test_a_flipped_bit_in_a_slots_record_never_yields_a_wrong_checkpoint(path):
    """Step, shapes and names are guarded like the data; only idle words may change unnoticed."""
    go_on(create(path), 2)
    file = slot_file(path, 1, "zarr.json")
    rng = random.Random(7)
    detected = 0
    for _ in range(150):
        bit = rng.randrange(8 * file.stat().st_size)
        flip(file, bit)
        restored = RunStore.open(path).checkpoint()
        assert restored is not None
        detected += restored.warning is not None
        number = 1 if restored.warning is None else 0
        assert_checkpoints_equal(restored.checkpoint, commit_number(number).checkpoint)
        flip(file, bit)
    assert detected > 100


@pytest.mark.parametrize("what", ["c/0", "zarr.json", "."])
def test_a_slot_that_lost_a_file_falls_back_too(path, what):
    """A missing chunk reads as zeros in Zarr, which are finite and look like parameters."""
    go_on(create(path), 2)
    lost = slot_file(path, 1, what)
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    restored = RunStore.open(path).checkpoint()
    assert restored is not None
    assert restored.warning is not None
    assert_checkpoints_equal(restored.checkpoint, commit_number(0).checkpoint)


def test_with_both_slots_damaged_nothing_is_restarted_silently(path):
    """None would mean a fresh start, and bury a month of work."""
    go_on(create(path), 2)
    for commit in (0, 1):
        flip(slot_file(path, commit, "c/0"), 3)
    with pytest.raises(StoreError, match=r"no checkpoint is readable \(slot 1: .*; slot 0: "):
        RunStore.open(path, "a").checkpoint()


def test_damage_before_the_second_commit_leaves_nothing_to_fall_back_to(path):
    """Slot 1 was never written then; its absence must not read as "no checkpoint yet"."""
    go_on(create(path), 1)
    flip(slot_file(path, 0, "c/0"), 3)
    with pytest.raises(StoreError, match="no checkpoint is readable"):
        RunStore.open(path).checkpoint()


@pytest.mark.parametrize("newest", [3, 6, 8])
def test_after_a_fallback_the_run_ends_as_if_undisturbed(path, newest):
    """The series go back with the checkpoint: no row is missing and none is there twice."""
    go_on(create(path), newest + 1)
    flip(slot_file(path, newest, "c/0"), 50)
    store = RunStore.open(path, "a")
    restored = store.checkpoint()
    assert restored is not None
    assert_series_hold(store, newest)
    go_on(store, newest + 1)
    assert_holds(path, newest + 1)
    go_on(store)
    assert_holds(path, N_COMMITS)


def test_readers_keep_all_rows_while_a_slot_is_damaged(path):
    """A broken checkpoint says nothing against the energies of a finished run."""
    go_on(create(path))
    for commit in (N_COMMITS - 2, N_COMMITS - 1):
        flip(slot_file(path, commit, "c/0"), 3)
    assert_series_hold(RunStore.open(path), N_COMMITS)


@pytest.mark.parametrize("name", ["train/energy", "train/step", "evaluate/energy", "walkers/r"])
def test_a_flipped_bit_in_a_series_is_an_error(path, name):
    """Energies carry checksums as well: a flipped exponent bit is a plausible energy."""
    go_on(create(path))
    flip(min(file for file in (path / name / "c").rglob("*") if file.is_file()), 77)
    store = RunStore.open(path)
    with pytest.raises(StoreError) as damage:
        store.snapshots() if name.startswith("walkers") else store.series(
            "train" if name.startswith("train") else "evaluate"
        )
    last = {"walkers/r": 1, "train/energy": 60, "train/step": 60}.get(name, 40)
    assert str(damage.value) == (
        f"{path}: {name} is not readable: rows 1 to {last} are damaged ({name}/c/0); {CURE}"
    )


def test_a_damaged_chunk_is_told_as_a_missing_one_is(path):
    """Which rows, which file, what to do; and no library's words about bytes."""
    steps = np.arange(1.0, 9001.0)
    layout = Layout(n_train=9000, n_evaluate=0, n_walkers=1, n_electrons=1, n_snapshots=0)
    store = RunStore.create(path, run_id="h2", spec_text="", provenance={}, layout=layout)
    columns = dict.fromkeys(SERIES["train"], steps)
    store.commit(Commit(train=columns, checkpoint=Checkpoint("train", 9000, {})))
    flip(path / "train/energy/c/1", 77)
    with pytest.raises(StoreError) as damage:
        RunStore.open(path).series("train")
    assert str(damage.value) == (
        f"{path}: train/energy is not readable: rows 4097 to 8192 are damaged (train/energy/c/1); "
        "restore them from a copy, or begin the run anew with vmcjob rerun"
    )


def test_a_damaged_series_stops_its_writer_instead_of_being_written_over(path):
    """To extend a chunk is to read it first; what was damaged must not get a fresh checksum."""
    go_on(create(path), 3)
    flip(path / "train/energy/c/0", 77)
    with pytest.raises(StoreError) as damage:
        go_on(RunStore.open(path, "a"), 4)
    assert str(damage.value) == (
        f"{path}: cannot commit: rows 1 to 40 are damaged (train/energy/c/0); {CURE}"
    )


def test_a_series_shorter_than_its_commits_is_an_error(path):
    """An array replaced by a shorter one is missing data, not a short run."""
    go_on(create(path), 3)
    metadata = path / "train/energy/zarr.json"
    metadata.write_text(metadata.read_text().replace("60", "10", 1))
    with pytest.raises(StoreError, match="train/energy"):
        RunStore.open(path).series("train")


def mutate(file: Path, rng: random.Random) -> None:
    """Some damage: a flipped bit, a cut, a doubled piece, other digits, or no file at all."""
    data = bytearray(file.read_bytes())
    at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    kind = rng.randrange(5)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:to]
    elif kind == 2:
        data[at:at] = data[at:to]
    elif kind == 3:
        data = data.translate(bytes.maketrans(b"0123456789", rng.randbytes(10)))
    else:
        file.unlink()
        return
    file.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [100, pytest.param(1000, marks=pytest.mark.full_matrix)])
def test_no_damage_leads_to_a_traceback_or_to_other_energies(path, tmp_path, cases):
    """Whatever happens to a store's files, reading it ends in its own numbers or a `StoreError`.

    The aggregate of a finished run is its exact energy or an exclusion with a reason.
    """
    go_on(create(path))
    expected = rows("evaluate", 0, 40)["energy"]
    rng = random.Random(11)
    for _ in range(cases):
        copy = tmp_path / "copy" / "run.zarr"
        shutil.copytree(path, copy)
        mutate(rng.choice(sorted(file for file in copy.rglob("*") if file.is_file())), rng)
        run = RunResult("h2-0123", "h2", {}, 0, "a" * 64, "FINISHED", copy)
        table = make_table([run])
        assert len(table.rows) + len(table.excluded) == 1
        for row in table.rows:
            assert row.energy == pytest.approx(expected.mean(), rel=1e-14)
        try:
            restored = RunStore.open(copy, "a").checkpoint()
        except StoreError:
            restored = None
        if restored is not None:
            number = N_COMMITS - 1 - (restored.warning is not None)
            assert_checkpoints_equal(restored.checkpoint, commit_number(number).checkpoint)
        shutil.rmtree(copy.parent)


def test_the_reference_run_counts_its_commits(path):
    """The other tests lean on this count."""
    assert number_committed(go_on(create(path), 7)) == 7


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda folder: (folder / "zarr.json").write_text('{"attr'),
            "hartree_fock/zarr.json is damaged",
        ),
        (shutil.rmtree, "hartree_fock is missing"),
    ],
)
def test_a_hartree_fock_that_is_damaged_is_named(path, damage, words):
    """It is no run's own number, but the table compares with it."""
    store = create(path)
    orbitals = {spin: np.ones((2, 1)) for spin in ("up", "down")}
    store.record_hartree_fock(HartreeFockRecord({"energy": -2.8}, orbitals))
    assert RunStore.open(path).hartree_fock() is not None
    damage(path / "hartree_fock")
    with pytest.raises(StoreError, match=rf"run\.zarr: {words}; {CURE}"):
        RunStore.open(path).hartree_fock()
