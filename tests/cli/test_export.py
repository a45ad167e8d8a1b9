"""export, as users type it; its event files read back record by record."""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any  # messages of protobuf

import google_crc32c
import numpy as np
import pytest

from tests.cli.shell import Shell
from tests.test_golden import CANCELLED, FINISHED, unpack
from vmcjob.cli.export import export as export_runs
from vmcjob.errors import ExportError, UsageError
from vmcjob.results import export
from vmcjob.results.export import EVENT_FILE
from vmcjob.results.optional import load
from vmcjob.store import RunStore

MASK = 0xA282EAD8  # of TFRecord: a checksum of what has checksums in it would be weak


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """The runs of an earlier release: one helium atom is finished, one is not."""
    return unpack(tmp_path)


def records(path: Path) -> Iterator[bytes]:
    """The length, its checksum, the data, its checksum; as TensorBoard checks them."""
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        body, data = data[12 : 12 + length], data[:12] + data[12 + length :]
        for content, checksum in ((data[:8], data[8:12]), (body, data[12:16])):
            crc = google_crc32c.value(content)
            expected = ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF
            assert struct.unpack("<I", checksum) == (expected,)
        yield body
        data = data[16:]


def events(path: Path) -> list[Any]:
    event = load("tensorboardX.proto.event_pb2", export.EXTRA).Event
    return [event.FromString(record) for record in records(path)]


def scalars(path: Path) -> dict[str, dict[int, float]]:
    """By tag, the number of every step."""
    found: dict[str, dict[int, float]] = {}
    for event in events(path):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def texts(path: Path) -> dict[str, str]:
    return {
        value.tag.partition("/")[0]: value.tensor.string_val[0].decode()
        for event in events(path)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "text"
    }


def test_an_event_file_has_every_number_of_the_series(shell):
    """At its step, in single precision, under the name that the store has for it."""
    done = shell.run("export", FINISHED, "-o", "boards")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "wrote 1 run; tensorboard --logdir boards shows them\n"
    path = shell.cwd / "boards" / FINISHED / EVENT_FILE
    found = scalars(path)
    store = RunStore.open(shell.runs / FINISHED / "run.zarr")
    for phase in ("train", "evaluate"):
        rows = store.series(phase)
        for name in set(rows) - {"step"}:
            is_known = np.isfinite(rows[name])
            expected = dict(zip(rows["step"][is_known], rows[name][is_known], strict=True))
            assert found.get(f"{phase}/{name}", {}) == pytest.approx(expected, rel=1e-6)
    assert {"train/energy", "train/variance", "evaluate/energy"} <= set(found)
    assert 'kind = "spring"' in texts(path)["spec"]
    assert "versions.jax" in texts(path)["provenance"]


def test_wall_times_are_those_of_the_run(shell):
    """So that TensorBoard's clock shows how long it took, whenever it was exported."""
    shell.run("export", FINISHED, "-o", "boards")
    path = shell.cwd / "boards" / FINISHED / EVENT_FILE
    times = [e.wall_time for e in events(path) if e.summary.value[:1] and e.step]
    rows = RunStore.open(shell.runs / FINISHED / "run.zarr").series("evaluate")
    assert times[-1] - times[-2] == pytest.approx(np.diff(rows["wall_time"])[-1], abs=1e-5)


def test_exported_again_it_is_replaced_and_nothing_else(shell):
    """A run that has gone on, say; without -o anywhere but into the folders of runs."""
    assert shell.run("export", FINISHED, "-o", "boards").returncode == 0
    folder = shell.cwd / "boards" / FINISHED
    (folder / "note.txt").write_text("mine")
    before = scalars(folder / EVENT_FILE)
    (folder / EVENT_FILE).write_bytes(b"")
    assert shell.run("export", FINISHED, "-o", "boards").returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == [EVENT_FILE, "note.txt"]
    assert scalars(folder / EVENT_FILE) == before


@pytest.mark.parametrize("output", ["runs", f"runs/{FINISHED}", "runs/.boards"])
def test_nothing_is_written_among_runs(shell, output):
    before = sorted(shell.runs.rglob("*"))
    done = shell.run("export", FINISHED, "-o", output)
    assert done.returncode == 2
    assert "belongs to runs; write it elsewhere" in done.stderr
    assert sorted(shell.runs.rglob("*")) == before


def test_a_run_that_cannot_be_read_is_named_and_the_rest_exported(shell):
    """An unfinished one has what it has."""
    (shell.runs / FINISHED / "run.zarr/train/energy/c/0").write_bytes(b"?")
    done = shell.run("export", "spring*", "-o", "boards")
    assert done.returncode == 3
    assert "train/energy is not readable" in done.stderr
    assert done.stderr.endswith("1 of 2 runs could not be exported\n")
    assert len(scalars(shell.cwd / "boards" / CANCELLED / EVENT_FILE)["train/energy"]) == 8
    assert not (shell.cwd / "boards" / FINISHED).exists()


def test_without_the_library_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match=r"tensorboardX.*pip install 'vmcjob\[export\]'"):
        export.require_library()


def test_a_full_disk_is_one_sentence_and_an_end(shell, tmp_path, monkeypatch):
    """The library's own thread would end at the error, and all others wait for it for ever."""
    file = load("tensorboardX.record_writer", export.EXTRA)
    monkeypatch.setattr(file, "open_file", lambda _: open("/dev/full", "wb"))  # noqa: SIM115
    with pytest.raises(ExportError) as refusal:
        export_runs(tmp_path / "boards", [FINISHED, CANCELLED], runs=shell.runs)
    folder = tmp_path / "boards" / FINISHED  # the older one
    assert str(refusal.value) == f"{folder}: cannot be written: No space left on device"
    assert refusal.value.exit_code == 1
    assert not folder.exists()
