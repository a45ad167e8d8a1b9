"""How an attempt begins and ends; the work in between is left out, or made to fail."""

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.shell import finish
from tests.run.harness import make_run
from vmcjob.errors import RunDirError
from vmcjob.run import main
from vmcjob.run.heartbeat import HeartbeatWriter
from vmcjob.run.stop import StopRequest
from vmcjob.rundir import Activity, Heartbeat, Outcome, RunDir
from vmcjob.runs.status import State, examine
from vmcjob.store import Layout, RunStore

Work = Callable[[RunDir, StopRequest, HeartbeatWriter], None]
TRAINING = Heartbeat(phase=Activity.TRAIN, step=3, n_steps=9, energy=-1.0)


@pytest.fixture
def do(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    """Puts something else in place of the work of an attempt."""
    return lambda work: monkeypatch.setattr("vmcjob.run.attempt.attempt", work)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """The last thing that the worker said."""
    caplog.set_level(logging.INFO, "vmcjob")
    return lambda: caplog.messages[-1]


def make_finished(root: Path) -> RunDir:
    """A run that has finished, with a store of its own."""
    run = make_run(root)
    layout = Layout(n_train=1, n_evaluate=1, n_walkers=2, n_electrons=2, n_snapshots=0)
    RunStore.create(
        run.store_path, run_id=run.path.name, spec_text="", provenance={}, layout=layout
    )
    text = (run.store_path / "zarr.json").read_text()
    finish(run)
    (run.store_path / "zarr.json").write_text(text)
    return run


def lose_spec(run: RunDir) -> None:
    run.spec_path.unlink()


def edit_spec(run: RunDir) -> None:
    run.write_spec_text(run.read_spec_text().replace("walkers = 64", "walkers = 65"))


def break_spec(run: RunDir) -> None:
    run.write_spec_text("name = ")


def take_newer_store(run: RunDir) -> None:
    root = run.store_path / "zarr.json"
    root.write_text(root.read_text().replace('"schema_version": 1', '"schema_version": 99'))


def swap_store(run: RunDir) -> None:
    root = run.store_path / "zarr.json"
    root.write_text(root.read_text().replace(run.path.name, "he-0123456789"))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lose_spec, "{run}/spec.toml: cannot be read: No such file or directory"),
        (
            edit_spec,
            "{run}/spec.toml: asks for other numbers than the run was made for (by vmcjob test); "
            "restore the file, or submit the new spec: it is another run",
        ),
        (
            break_spec,
            "{run}/spec.toml:1:8: not valid TOML: a value is missing\n    name = \n           ^",
        ),
        (
            take_newer_store,
            "{run}/run.zarr: written by a newer vmcjob (schema 99, this one reads up to 1); "
            "upgrade vmcjob to read it",
        ),
        (swap_store, "{run}/run.zarr: belongs to run he-0123456789, not to {id}"),
    ],
)
def test_a_finished_run_that_is_refused_stays_finished(damage, sentence, tmp_path, said) -> None:
    """Its results are as good as before: aggregate must not drop them for `vmcjob run`'s sake."""
    run = make_finished(tmp_path)
    outcome, beat = run.read_outcome(), run.read_heartbeat()
    damage(run)
    assert main(run.path) == 1
    assert said() == "FAILED " + sentence.format(run=run.path, id=run.path.name)
    assert (run.read_outcome(), run.read_heartbeat()) == (outcome, beat)
    assert [attempt["event"] for attempt in run.read_attempts()] == ["start", "end"]
    assert not run.reserve_path.exists()


def test_a_worker_whose_run_is_removed_ends_and_leaves_no_ghost(tmp_path, do) -> None:
    """What it wrote after `rm -r` would stand in the way of the next submission."""
    run = make_run(tmp_path)

    def work(run_dir: RunDir, stop: StopRequest, heartbeat: HeartbeatWriter) -> None:
        heartbeat.beat(TRAINING)
        shutil.rmtree(run.path)
        run.path.mkdir()  # as far as `rm -r` comes with a file that came in between
        heartbeat.beat(TRAINING)

    do(work)
    with pytest.raises(RunDirError) as refusal:
        main(run.path)
    assert str(refusal.value) == (
        f"{run.path}: removed or moved while its worker was running; nothing more is written"
    )
    assert list(run.path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of so many KiB."""
    root = tmp_path / "disk"
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}k", "none", str(root)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield root
    subprocess.run(["umount", "-l", str(root)], check=True)


def fill(root: Path) -> None:
    """Write until nothing more goes in."""
    with open(root / "filler", "ab", buffering=0) as file:
        try:
            while file.write(bytes(1024)):
                pass
        except OSError:
            return


FULL = "No space left on device; the disk is full: free some space, then vmcjob resume goes on"


@pytest.mark.parametrize("small_disk", [40, 120], indirect=True)
def test_a_disk_that_fills_up_is_named_by_the_outcome(small_disk, do) -> None:
    """The worker has kept the space for that."""
    run = make_run(small_disk)

    def work(run_dir: RunDir, stop: StopRequest, heartbeat: HeartbeatWriter) -> None:
        fill(small_disk)
        heartbeat.beat(TRAINING)

    do(work)
    assert main(run.path) == 1
    row = examine(run)
    assert row.state is State.FAILED
    assert row.message == f"{run.path}/heartbeat.json: cannot be written: {FULL}"
    assert not run.reserve_path.exists()


@pytest.mark.parametrize("small_disk", [40, 120], indirect=True)
def test_a_disk_that_is_full_from_the_start_is_named_by_status(small_disk, do) -> None:
    """Nothing can be written, so status looks for itself."""
    run = make_run(small_disk)
    run.write_heartbeat(TRAINING)
    fill(small_disk)
    do(lambda run_dir, stop, heartbeat: pytest.fail("there is no work to be done"))
    with pytest.raises(RunDirError, match=r"outcome.json: cannot be written: No space left"):
        main(run.path)
    beat = Heartbeat(phase=Activity.TRAIN, step=3, n_steps=9, host="elsewhere", time=0.0)
    (small_disk / "filler").unlink()
    run.write_heartbeat(beat)
    fill(small_disk)
    row = examine(run)
    assert row.state is State.DEAD
    assert row.message == "the disk is full: free some space, then vmcjob resume goes on"


@pytest.mark.parametrize("small_disk", [16], indirect=True)
def test_a_disk_too_small_for_a_run_is_named_when_it_is_made(small_disk) -> None:
    (small_disk / "other").write_bytes(bytes(12288))
    with pytest.raises(RunDirError) as refusal:
        make_run(small_disk)
    assert str(refusal.value).endswith(": No space left on device")
    assert str(refusal.value).startswith(f"{small_disk}/he-")


def caused(error: Exception, cause: Exception) -> Exception:
    """An error that came from another one."""
    error.__cause__ = cause
    return error


@pytest.fixture
def without_settings(monkeypatch) -> None:
    """An environment that says nothing to JAX."""
    for name in [name for name in os.environ if name.startswith("JAX_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("error", "platforms", "sentence"),
    [
        (
            AssertionError(),
            "cuda",
            "JAX finds no device to compute on with JAX_PLATFORMS=cuda: JAX gives no reason; see "
            "that the device is there and that jax was installed for it, or unset JAX_PLATFORMS",
        ),
        (
            caused(AssertionError(), RuntimeError("no CUDA-capable device is detected\nmore")),
            "cuda",
            "JAX finds no device to compute on with JAX_PLATFORMS=cuda: no CUDA-capable device is "
            "detected; see that the device is there and that jax was installed for it, or unset "
            "JAX_PLATFORMS",
        ),
        (
            RuntimeError("Unable to initialize backend 'tpu'\nmore"),
            "",
            "JAX finds no device to compute on: Unable to initialize backend 'tpu'; see that the "
            "device is there and that jax was installed for it, or unset JAX_PLATFORMS",
        ),
    ],
)
def test_devices_that_jax_does_not_find_are_a_sentence(
    error, platforms, sentence, tmp_path, monkeypatch, without_settings
) -> None:
    """JAX's own words for a missing GPU are `AssertionError:` and nothing else."""

    def local_devices() -> None:
        raise error

    monkeypatch.setattr("jax.local_devices", local_devices)
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    run = make_run(tmp_path)
    assert main(run.path) == 1
    outcome = run.read_outcome()
    assert outcome is not None
    assert (outcome.outcome, outcome.message) == (Outcome.FAILED, sentence)


def test_a_jax_that_cannot_be_imported_is_a_sentence(
    tmp_path, monkeypatch, without_settings
) -> None:
    """A jaxlib of another release, or a setting that JAX cannot read."""

    def import_module(name: str) -> None:
        raise RuntimeError("jaxlib version 0.1 is newer than and incompatible with jax 0.0")

    monkeypatch.setattr("importlib.import_module", import_module)
    run = make_run(tmp_path)
    assert main(run.path) == 1
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.message == (
        "JAX cannot be imported: jaxlib version 0.1 is newer than and incompatible with jax 0.0"
    )
