"""A finished store as one file: the same numbers, for everybody who reads; never half of one."""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import xarray
import zarr
from zarr.storage import ZipStore

from tests.store.reference import N_COMMITS, ROWS, assert_holds, create, go_on, rows
from vmcjob.errors import StoreError
from vmcjob.store import RunStore, peek
from vmcjob.store.archive import is_packed, measure, pack, remove_archive, remove_directory, unpack
from vmcjob.store.files import archive_of

RUN_ID = "h2-0123"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store with all commits, in a directory."""
    go_on(create(tmp_path / "run.zarr"))
    return tmp_path / "run.zarr"


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a directory."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def test_an_archived_store_holds_what_was_committed(path):
    """Series, snapshots and checkpoint, bit for bit; `RunStore` needs no other path."""
    pack(path, RUN_ID)
    remove_directory(path)
    assert [file.name for file in path.parent.iterdir()] == ["run.zarr.zip"]
    assert_holds(path, N_COMMITS)


def test_a_restored_store_is_the_same_to_the_byte(path):
    """Nothing is lost or added on the way there and back, and a writer can go on with it."""
    before = contents(path)
    pack(path, RUN_ID)
    remove_directory(path)
    unpack(path)
    assert is_packed(path)
    remove_archive(path)
    assert contents(path) == before
    assert [file.name for file in path.parent.iterdir()] == ["run.zarr"]
    RunStore.open(path, "a").record("note", 1)


def test_what_file_names_tell_is_told_of_an_archive(path):
    """The login node reads the zip file's own directory: no Zarr, no other answers."""

    def tell() -> list[object]:
        return [
            peek.exists(path),
            peek.attributes(path),
            peek.n_rows(path, "evaluate/step"),
            peek.n_rows(path, "evaluate/nothing"),
            peek.missing_rows(path, "evaluate/energy", 40),
            peek.missing_rows(path, "nothing/energy", 40),
            peek.arrays_in(path, "train"),
            peek.has_group(path, "observe"),
            measure(path),
        ]

    before = tell()
    pack(path, RUN_ID)
    remove_directory(path)
    assert tell() == before


def test_the_same_store_gives_the_same_archive(path):
    """So that backups see that nothing has changed."""
    pack(path, RUN_ID)
    first = archive_of(path).read_bytes()
    archive_of(path).unlink()
    pack(path, RUN_ID)
    assert archive_of(path).read_bytes() == first


def test_users_read_an_archive_as_they_read_the_directory(path):
    """With xarray, by group, no word of ours."""
    pack(path, RUN_ID)
    place = ZipStore(archive_of(path), mode="r")
    with xarray.open_zarr(place, group="evaluate", consolidated=False) as found:
        expected = rows("evaluate", 0, 4 * ROWS)["energy"]
        np.testing.assert_array_equal(found["energy"], expected)
        assert found["energy"].attrs["units"] == "hartree"
    place.close()


def test_a_run_can_start_from_an_archive(path, tmp_path):
    """All is copied but the snapshots, as from a directory."""
    peek.copy_start(path, tmp_path / "one")
    pack(path, RUN_ID)
    remove_directory(path)
    peek.copy_start(path, tmp_path / "other")
    assert contents(tmp_path / "other") == contents(tmp_path / "one")
    assert not (tmp_path / "one/walkers/r/c").exists()


def test_an_archive_is_not_written_to(path):
    """One sentence, with what to do; and no new store begins beside it."""
    pack(path, RUN_ID)
    remove_directory(path)
    with pytest.raises(StoreError, match=r"run\.zarr\.zip: .* vmcjob archive --restore first"):
        RunStore.open(path, "a")
    with pytest.raises(StoreError, match="exists already"):
        create(path)


def test_a_directory_that_differs_from_its_archive_stays(path):
    """One flipped bit behind a checksum that fits, as an editor of arrays would leave it."""
    pack(path, RUN_ID)
    array = zarr.open_array(path / "evaluate/energy", mode="r+")
    array[3] = 1.0
    assert not is_packed(path)
    with pytest.raises(StoreError, match="evaluate/energy differs from row"):
        remove_directory(path)
    with pytest.raises(StoreError, match="evaluate/energy differs from row"):
        remove_archive(path)
    assert path.exists()
    assert archive_of(path).exists()


def test_an_archive_without_a_file_of_the_directory_is_no_archive(path):
    """Zarr would read a chunk that is not there as fill values."""
    pack(path, RUN_ID)
    (path / "evaluate/energy/c/0").unlink()
    with pytest.raises(StoreError, match=f"differs from {path.name} in its list of files"):
        remove_directory(path)
    with pytest.raises(StoreError, match="rows 1 to 40 of evaluate/energy are missing"):
        pack(path, RUN_ID)


def test_damaged_results_are_not_archived(path):
    """An archive must not make old damage look like its own."""
    chunk = path / "train/energy/c/0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError, match="train/energy is not readable"):
        pack(path, RUN_ID)
    assert not archive_of(path).exists()


@pytest.mark.parametrize("damage", ["cut", "flip", "text"])
def test_a_damaged_archive_is_named(path, damage):
    """For readers, for status, and for whoever wants to restore it."""
    pack(path, RUN_ID)
    remove_directory(path)
    archive = archive_of(path)
    with ZipFile(archive) as zipped:
        at = zipped.getinfo("evaluate/energy/c/0").header_offset + 80
    content = bytearray(archive.read_bytes())
    content[at] ^= 1
    archive.write_bytes(
        {"cut": bytes(content[: len(content) // 2]), "flip": bytes(content), "text": b"no zip"}[
            damage
        ]
    )
    with pytest.raises(StoreError, match=r"run\.zarr"):
        RunStore.open(path).series("evaluate")
    with pytest.raises(StoreError) as refusal:
        unpack(path)
    assert str(refusal.value) == (
        f"{archive}: cannot be restored: it is damaged; put a copy of it in its place, or begin "
        "the run anew with vmcjob rerun"
    )
    assert list(path.parent.iterdir()) == [archive]
    assert (peek.attributes(path) is None) == (damage != "flip")


def test_another_runs_store_is_not_archived(path):
    """As it would not be read."""
    with pytest.raises(StoreError, match="belongs to run h2-0123"):
        pack(path, "h2-other")


def test_nothing_is_restored_over_a_directory(path):
    pack(path, RUN_ID)
    with pytest.raises(StoreError, match="is there already"):
        unpack(path)


def test_a_full_disk_leaves_the_directory(path, monkeypatch):
    """And no part of an archive."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", fail)
    with pytest.raises(StoreError, match="cannot be archived: No space left"):
        pack(path, RUN_ID)
    assert list(path.parent.iterdir()) == [path]
    assert_holds(path, N_COMMITS)


@pytest.mark.slow
def test_killed_at_any_moment_the_store_is_whole(tmp_path):
    """Before each 61st touch of the disk: a directory or an archive holds every commit."""
    program = [sys.executable, "-m", "tests.store.killed_archivers", str(tmp_path / "run.zarr")]
    done = subprocess.run([*program, "61"], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert min(map(int, done.stdout.split())) >= 5
