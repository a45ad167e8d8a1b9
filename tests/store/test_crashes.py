"""Writers that die or meet a broken disk at any moment leave what was committed, no more."""

import contextlib
import errno
import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from tests.matrix import rest
from tests.store.reference import (
    N_COMMITS,
    assert_holds,
    checkpoint,
    commit_number,
    create,
    go_on,
    rows,
)
from vmcjob.errors import StoreError
from vmcjob.store import Commit, HartreeFockRecord, RunStore


class Crash(BaseException):
    """The process ends here, as far as the code under test can tell."""


def fail_at(n: int, call: Callable, error: BaseException) -> Callable:
    """`call`, but from the n-th time on it raises `error` instead: a dead process stays dead."""
    counter, lock = itertools.count(1), threading.Lock()

    def failing(*args: object, **kwargs: object) -> object:
        with lock:
            count = next(counter)
        if count >= n:
            raise error
        return call(*args, **kwargs)

    return failing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.zarr"


@pytest.mark.slow
@pytest.mark.parametrize("before", [7, *rest(0, 1, 2, 6)])
def test_a_commit_that_dies_between_any_two_files_leaves_no_trace(path, monkeypatch, before):
    """Readers find the commit before, and a new writer goes on as if nothing had happened.

    Every point of death is tried, until one lies beyond the last file. Mutants in mind: lengths
    and active slot in two writes; the pointer before the slot; the active slot overwritten.
    """
    whole, deaths = path.with_name("whole"), 0
    go_on(create(path), before)
    path.rename(whole)
    for n in itertools.count(1):
        shutil.copytree(whole, path)
        store = RunStore.open(path, "a")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", fail_at(n, Path.replace, Crash()))
            try:
                store.commit(commit_number(before))
            except Crash:
                deaths += 1
        if deaths < n:
            break
        assert_holds(path, before)
        go_on(RunStore.open(path, "a"), before + 2)
        assert_holds(path, before + 2)
        assert not list(path.parent.glob(".*"))
        shutil.rmtree(path)
    assert_holds(path, before + 1)
    assert deaths >= 9  # four columns, two of snapshots, the slot's two, the root


@pytest.mark.slow
def test_a_store_that_dies_while_being_created_never_was(path, monkeypatch):
    """A half-made store would be taken for a damaged one; creating again must just work."""
    for n in itertools.count(1):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", fail_at(n, Path.replace, Crash()))
            patch.setattr(Path, "rename", fail_at(1, Path.rename, Crash()))
            with pytest.raises(Crash):
                create(path)
        assert not path.exists()
        if n > 30:  # more than the files of an empty store: it died at the very last step
            break
    create(path)
    assert_holds(path, 0)


def hartree_fock(n: int) -> HartreeFockRecord:
    """One of many."""
    orbitals = {"up": np.full((3, n), 0.5), "down": np.full((3, 1), float(n))}
    return HartreeFockRecord({"energy": -1.0 - n}, orbitals)


@pytest.mark.slow
def test_a_hartree_fock_that_dies_between_any_two_files_never_was(path, monkeypatch):
    """Whoever recorded it half is followed by one who records it whole, with other orbitals too."""
    store, n, found = go_on(create(path), 2), 0, None
    while found is None:
        n += 1
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", fail_at(n, Path.replace, Crash()))
            with contextlib.suppress(Crash):
                store.record_hartree_fock(hartree_fock(n))
        assert_holds(path, 2)
        store = RunStore.open(path, "a")
        found = store.hartree_fock()
    assert n > 5  # its group, and of each array a chunk and what describes it
    assert found.attributes == hartree_fock(n).attributes
    for spin, orbitals in hartree_fock(n).orbitals.items():
        np.testing.assert_array_equal(found.orbitals[spin], orbitals)
    go_on(store, 3)
    assert_holds(path, 3)


def test_files_reach_the_disk_before_the_pointer_to_them(path, monkeypatch):
    """After a power cut, what the root promises must be there: sync each file, then its folder.

    Mutant in mind: renames without fsync, as in a plain local store.
    """
    store = go_on(create(path), 2)
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def recorded_replace(self: Path, target: Path) -> Path:
        events.append(("replace", str(target)))
        assert ("sync", str(self)) in events
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    go_on(store, 3)
    pointer = events.index(("replace", str(path / "zarr.json")))
    replaced = [Path(name) for event, name in events if event == "replace"]
    assert len(replaced) == 16
    for file in replaced[:-1]:
        synced = events.index(("sync", str(file.parent)))
        assert events.index(("replace", str(file))) < synced < pointer
    assert events[-1] == ("sync", str(path))


class TornFile:
    """A file that takes the first half of what is written to it."""

    def __init__(self, file: BinaryIO, error: OSError) -> None:
        self._file, self._error = file, error

    def __enter__(self) -> "TornFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def write(self, data: memoryview) -> None:
        self._file.write(bytes(data)[: len(bytes(data)) // 2])
        raise self._error


def tear_at(n: int, call: Callable, error: OSError) -> Callable:
    """`call`, which opens a file, but from the n-th on the files are torn."""
    counter, lock = itertools.count(1), threading.Lock()

    def torn(*args, **kwargs):
        with lock:
            count = next(counter)
        file = call(*args, **kwargs)
        return TornFile(file, error) if count >= n else file

    return torn


def when_writing(break_at: Callable) -> Callable:
    """The same for opening a file, where reading goes on as ever."""

    def break_writing_at(n: int, call: Callable, error: OSError) -> Callable:
        broken = break_at(n, call, error)

        def open_file(path: Path, mode: str = "r", *args, **kwargs):
            return (broken if mode == "wb" else call)(path, mode, *args, **kwargs)

        return open_file

    return break_writing_at


FAULTS = {
    "open": (Path, "open", when_writing(fail_at)),
    "write": (Path, "open", when_writing(tear_at)),
    "fsync": (os, "fsync", fail_at),
    "rename": (Path, "replace", fail_at),
}


# Each kind of fault, and each answer of a disk.
DISKS = [("open", errno.EACCES), ("write", errno.ENOSPC), ("fsync", errno.EIO)]
DISKS += [("rename", errno.ENOSPC)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        pytest.param(*one, marks=() if one in DISKS else pytest.mark.full_matrix)
        for one in product(FAULTS, [errno.ENOSPC, errno.EIO, errno.EACCES])
    ],
)
def test_a_failing_disk_is_an_error_and_the_run_goes_on_when_it_recovers(
    path, monkeypatch, fault, code
):
    """Wherever in a commit it fails, the store opens, and nothing committed is lost or doubled.

    The same process may try again, and so may a new one. Every point of failure is tried, until
    one lies beyond the last file.
    """
    owner, name, break_at = FAULTS[fault]
    store = go_on(create(path), 3)
    sentences: list[str] = []
    for n in itertools.count(1):
        with monkeypatch.context() as patch:
            error = OSError(code, os.strerror(code))
            patch.setattr(owner, name, break_at(n, getattr(owner, name), error))
            try:
                store.commit(commit_number(3))
            except StoreError as sentence:
                sentences.append(str(sentence))
        if len(sentences) < n:
            break
        is_pointer_in_place = fault == "fsync" and n == 32  # only its folder was not synced
        assert_holds(path, 4 if is_pointer_in_place else 3)
    assert len(sentences) == (32 if fault == "fsync" else 16)
    assert all(f"run.zarr: cannot commit: [Errno {code}]" in sentence for sentence in sentences)
    assert_holds(path, 4)
    go_on(store, 5)
    assert_holds(path, 5)
    go_on(RunStore.open(path, "a"))
    assert_holds(path, N_COMMITS)


def test_a_failing_disk_at_creation_is_an_error_too(path, monkeypatch):
    """A full disk is met first when a run starts."""
    with monkeypatch.context() as patch:
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(os, "fsync", fail_at(7, os.fsync, error))
        with pytest.raises(StoreError, match=r"cannot create the store: .*No space left"):
            create(path)
    assert not path.exists()
    create(path)


def test_a_file_system_that_cannot_sync_folders_is_good_enough(path, monkeypatch):
    """Some network file systems answer EINVAL there; files themselves must still be synced."""
    fsync = os.fsync

    def without_folders(descriptor: int) -> None:
        if os.path.isdir(os.readlink(f"/proc/self/fd/{descriptor}")):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", without_folders)
    go_on(create(path), 2)
    assert_holds(path, 2)


def test_a_store_that_vanished_is_not_conjured_up_again(path):
    """A run directory deleted under its worker stays deleted, and the worker is told."""
    store = go_on(create(path), 2)
    shutil.rmtree(path)
    with pytest.raises(StoreError, match="cannot commit"):
        store.commit(commit_number(2))
    assert not path.exists()


def test_a_writer_sweeps_what_a_dead_one_left(path):
    """Leftovers never count as data, and must not pile up over a month of restarts."""
    go_on(create(path), 2)
    partial = path.parent / ".run.zarr.partial"
    partial.mkdir()
    (partial / "train.energy.c.0").write_bytes(b"half")
    assert_holds(path, 2)
    assert partial.exists()
    RunStore.open(path, "a")
    assert not partial.exists()


def test_rows_written_but_never_committed_are_replaced(path, monkeypatch):
    """A resumed run may compute other rows, on other devices say; the old ones must not survive."""
    store = go_on(create(path), 2)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail_at(11, Path.replace, Crash()))
        with pytest.raises(Crash):
            store.commit(commit_number(2))
    other = {name: np.full(6, 0.5) for name in rows("train", 0, 1)}
    RunStore.open(path, "a").commit(Commit(train=other, checkpoint=checkpoint("train", 26)))
    energy = RunStore.open(path).series("train")["energy"]
    assert len(energy) == 26
    np.testing.assert_array_equal(energy[20:], 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [25, pytest.param(300, marks=pytest.mark.full_matrix)])
def test_killed_writers_lose_nothing_they_committed(path, kills):
    """SIGKILL at random moments of creation, commits and recovery, then the next writer goes on.

    After each kill every committed bit is verified, and that no commit went missing.
    """
    harness = subprocess.run(
        [sys.executable, "-m", "tests.store.reference", str(path), str(kills), "20240607"],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        timeout=250,
        check=False,
    )
    assert harness.returncode == 0, harness.stderr
