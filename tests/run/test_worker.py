"""The worker, killed, stopped, resumed and refused, always as a real process."""

import json
import shutil
import signal
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import xarray

from tests.run import fake
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
from tests.runs import wait_until
from vmcjob import __version__
from vmcjob.run import main
from vmcjob.run.heartbeat import HeartbeatWriter
from vmcjob.run.stop import StopRequest
from vmcjob.rundir import Activity, Heartbeat, Outcome, Process, RunDir
from vmcjob.runs.status import examine
from vmcjob.runs.usage import work
from vmcjob.store import RunStore, peek

BEFORE_STEPS = (Activity.STARTING, Activity.COMPILING)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """One run from beginning to end."""
    run = make_run(tmp_path_factory.mktemp("undisturbed"))
    code, log = finish(start(run))
    assert code == 0, log
    assert " FINISHED" in log.splitlines()[-1]
    return run


@pytest.fixture(scope="module")
def undisturbed_fake(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """One run of the fake calculation, which costs little, from beginning to end."""
    run = make_run(tmp_path_factory.mktemp("undisturbed"))
    code, log = finish(start_fake(run))
    assert code == 0, log
    return run


def start_fake(run: RunDir, n_devices: int = 1) -> subprocess.Popen[str]:
    """A worker with the fake calculation, going."""
    return start(run, n_devices, fake.PROGRAM)


@pytest.mark.slow
def test_a_finished_run_says_so(undisturbed: RunDir) -> None:
    """Outcome, heartbeat and attempts agree, and the heartbeat ends on the result."""
    outcome, heartbeat = undisturbed.read_outcome(), undisturbed.read_heartbeat()
    assert outcome is not None
    assert heartbeat is not None
    assert outcome.outcome is Outcome.FINISHED
    assert (heartbeat.phase, heartbeat.step, heartbeat.n_steps) == ("done", 60, 60)
    store = RunStore.open(undisturbed.store_path)
    assert heartbeat.energy == pytest.approx(store.series("evaluate")["energy"].mean())
    assert store.attrs[peek.WALKERS]["steps"] == 60
    assert [attempt["event"] for attempt in undisturbed.read_attempts()] == ["start", "end"]


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(undisturbed: RunDir, tmp_path: Path) -> None:
    """SIGKILL in training and in evaluation, then the same command again: nothing differs.

    Catches anything left out of the checkpoint: keys, widths, the optimizer's memory, an
    equilibration done twice; and a Hartree–Fock that is forgotten when it was being solved.
    """
    run = make_run(tmp_path)
    for phase, n_steps in (("train", 1), ("evaluate", 20)):
        code = signal_when(start(run), signal.SIGKILL, has_committed(run, phase, n_steps))
        assert code == -signal.SIGKILL
        store = RunStore.open(run.store_path)
        assert store.n_committed[phase] < 60
        assert (store.hartree_fock() is None) == (n_steps == 1)
    code, log = finish(start(run))
    assert code == 0, log
    assert_same(results(run), results(undisturbed))
    found, expected = (RunStore.open(each.store_path).hartree_fock() for each in (run, undisturbed))
    assert found is not None
    assert expected is not None
    assert found.attributes == expected.attributes
    assert_same(found.orbitals, expected.orbitals)


@pytest.mark.slow
def test_a_run_asked_to_stop_commits_and_exits_75(undisturbed_fake: RunDir, tmp_path: Path) -> None:
    """SIGTERM: stopped at a block's edge, PREEMPTED, and taken up again to the same bits."""
    run = make_run(tmp_path)
    assert signal_when(start_fake(run), signal.SIGTERM, has_committed(run, "train", 5)) == 75
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.outcome is Outcome.PREEMPTED
    done = RunStore.open(run.store_path).n_committed["train"]
    assert outcome.message == f"stopped by SIGTERM; continues from train step {done}/60"
    worker, before_steps = start_fake(run), []
    while (beat := last_beat(run, worker)) is None or beat.phase in BEFORE_STEPS:
        assert worker.poll() is None
        before_steps += [beat] if beat else []
        time.sleep(0.01)
    assert {(beat.step, beat.n_steps) for beat in before_steps} == {(done, 60)}
    assert None not in {beat.energy for beat in before_steps}
    assert finish(worker)[0] == 0
    assert_same(results(run), results(undisturbed_fake))


def last_beat(run: RunDir, worker: subprocess.Popen[str]) -> Heartbeat | None:
    """The last heartbeat of this worker, None as long as there is only an earlier one's."""
    heartbeat = run.read_heartbeat()
    return heartbeat if heartbeat and heartbeat.pid == worker.pid else None


def test_a_run_stopped_before_its_first_commit_says_that_it_begins_anew(tmp_path: Path) -> None:
    """Warm-up is not committed; and nobody waits for a compilation only to stop after it."""
    run = make_run(tmp_path)
    worker = start_fake(run)
    assert signal_when(worker, signal.SIGTERM, lambda: last_beat(run, worker) is not None) == 75
    outcome, heartbeat = run.read_outcome(), run.read_heartbeat()
    assert outcome is not None
    assert heartbeat is not None
    assert outcome.message == "stopped by SIGTERM before its first commit; begins anew"
    assert (heartbeat.phase, heartbeat.step) == (Activity.COMPILING, 0)


# A worker whose steps, and so the first one of every phase, take as long as some compilations.
SLOW = """
from tests.run import fake
fake.STEP_S = 0.3
fake.main()
"""


@pytest.mark.slow
def test_a_run_says_that_it_compiles(tmp_path: Path) -> None:
    """Minutes without a step look like a hang, unless they are called by their name."""
    run = make_run(tmp_path)
    worker = start(run, program=("-c", SLOW))
    phases: list[Activity] = []
    while Activity.TRAIN not in phases:
        assert worker.poll() is None
        beat = last_beat(run, worker)
        if beat is not None and beat.phase not in phases:
            phases.append(beat.phase)
        time.sleep(0.01)
    assert signal_when(worker, signal.SIGTERM, lambda: True) == 75
    assert phases[:2] == [Activity.STARTING, Activity.COMPILING]


@pytest.mark.slow
def test_a_run_goes_on_when_its_output_is_to_be_kept_otherwise(
    undisturbed_fake: RunDir, tmp_path: Path
) -> None:
    """What decides no numbers may change between attempts; the store stays as it was planned."""
    run = make_run(tmp_path)
    assert signal_when(start_fake(run), signal.SIGTERM, has_committed(run, "train", 5)) == 75
    run.write_spec_text(run.read_spec_text().replace("snapshots = 3", "snapshots = 20"))
    code, log = finish(start_fake(run))
    assert code == 0, log
    assert_same(results(run), results(undisturbed_fake))


@pytest.mark.slow
def test_a_finished_run_that_lost_its_store_is_not_begun_anew(
    undisturbed: RunDir, tmp_path: Path
) -> None:
    """Whoever deleted a month of results must decide what is to become of the run."""
    run = RunDir(Path(shutil.copytree(undisturbed.path, tmp_path / undisturbed.path.name)))
    shutil.rmtree(run.store_path)
    code, log = finish(start(run))
    assert code == 1
    assert "finished, but its results are missing or damaged" in log
    assert "Traceback" not in log
    assert run.read_outcome() == undisturbed.read_outcome()
    assert not run.store_path.exists()


@pytest.mark.parametrize("edit", [("cg_iterations = 3", "cg_iterations = 4"), ("= 0\n", "= 1\n")])
def test_a_spec_that_was_edited_under_its_run_is_refused(edit: tuple[str, str], tmp_path) -> None:
    """Science and seed alike: the numbers would be another run's under this one's name."""
    run = make_run(tmp_path)
    run.write_spec_text(run.read_spec_text().replace(*edit, 1))
    code, log = finish(start(run))
    outcome = run.read_outcome()
    assert code == 1
    assert "Traceback" not in log
    assert outcome is not None
    assert "spec.toml: asks for other numbers than the run was made for" in outcome.message
    assert not run.store_path.exists()


OUT_OF_MEMORY = [
    MemoryError("Unable to allocate 12. TiB"),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 13194139533312 bytes."),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_a_job_that_memory_cannot_hold_fails_with_advice(error, tmp_path, monkeypatch) -> None:
    """NumPy says it in one way and XLA in another; neither is a bug of ours."""

    def attempt(run_dir: RunDir, stop: StopRequest, heartbeat: HeartbeatWriter) -> None:
        raise error

    monkeypatch.setattr("vmcjob.run.attempt.attempt", attempt)
    run = make_run(tmp_path)
    assert main(run.path) == 1
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.message == "out of memory; use fewer sampler.walkers or a smaller ansatz"


@pytest.mark.parametrize("is_about_it", [True, False])
def test_a_wish_to_stop_holds_for_the_attempt_that_it_was_about(is_about_it, tmp_path) -> None:
    """One for an earlier attempt is forgotten; one that came while JAX was imported is not."""
    run = make_run(tmp_path)
    run.write_cancellation(None)
    worker = start_fake(run)
    if is_about_it:
        run.write_cancellation(Process.of_pid(worker.pid))
    assert signal_when(worker, signal.SIGTERM, lambda: last_beat(run, worker) is not None) == 75
    assert (run.read_cancellation() is not None) == is_about_it
    assert run.read_attempts()[-1]["outcome"] == ("CANCELLED" if is_about_it else "PREEMPTED")


def stored(run: RunDir) -> dict[str, bytes]:
    """All files of a store, by their paths."""
    files = sorted(path for path in run.store_path.rglob("*") if path.is_file())
    return {str(path.relative_to(run.store_path)): path.read_bytes() for path in files}


def test_a_run_that_its_own_numbers_speak_against_ends_by_saying_so(tmp_path: Path) -> None:
    """Whoever looks at `status` alone must not take its energy for a result."""
    run = make_run(tmp_path, HELIUM.replace("steps = 60", "steps = 19", 1))
    code, log = finish(start_fake(run))
    assert code == 0, log
    outcome = run.read_outcome()
    assert outcome is not None
    sentence = "its training of 19 steps is too short to be judged"
    assert outcome.message.startswith("suspect: ")
    assert sentence in outcome.message
    assert log.endswith(f" FINISHED {outcome.message}\n")
    assert examine(run).message == outcome.message


def test_a_finished_run_run_again_stays_as_it_is(undisturbed_fake: RunDir) -> None:
    """Nothing is appended, nothing computed anew, nothing written; it ended when it ended."""
    before, outcome = stored(undisturbed_fake), undisturbed_fake.read_outcome()
    beat = undisturbed_fake.read_heartbeat()
    assert finish(start_fake(undisturbed_fake))[0] == 0
    assert stored(undisturbed_fake) == before
    assert undisturbed_fake.read_outcome() == outcome
    assert undisturbed_fake.read_heartbeat() == beat


@pytest.mark.full_matrix  # four devices of a real worker: test_ranks.py; updates: vmc/
@pytest.mark.slow
def test_the_same_job_runs_on_two_devices(undisturbed: RunDir, tmp_path: Path) -> None:
    """Other random numbers, same physics: evaluated energies agree within five error bars.

    The parameters differ too, so this compares runs of an easy system, not samples of one state.
    """
    run = make_run(tmp_path)
    code, log = finish(start(run, n_devices=2))
    assert code == 0, log
    provenance = RunStore.open(run.store_path).attrs["provenance"]
    assert provenance["devices"].startswith("2 ")
    energies = [RunStore.open(r.store_path).series("train")["energy"] for r in (run, undisturbed)]
    assert not np.array_equal(energies[0], energies[1])
    means = [series[-20:].mean() for series in energies]
    spread = max(series[-20:].std() for series in energies)
    assert abs(means[0] - means[1]) < 5 * spread


@pytest.mark.slow
def test_one_device_takes_up_what_two_began(tmp_path: Path) -> None:
    """Walkers are stored flat over devices."""
    run = make_run(tmp_path)
    assert signal_when(start_fake(run, 2), signal.SIGTERM, has_committed(run, "train", 5)) == 75
    assert finish(start_fake(run, 1))[0] == 0
    assert RunStore.open(run.store_path).n_committed["evaluate"] == 60


def test_walkers_that_devices_cannot_share_are_refused_with_a_sentence(tmp_path: Path) -> None:
    """65 walkers on two devices: which key, what came, what to do."""
    run = make_run(tmp_path, HELIUM.replace("walkers = 64", "walkers = 65"))
    code, log = finish(start(run, n_devices=2))
    outcome = run.read_outcome()
    assert code == 1
    assert outcome is not None
    assert outcome.outcome is Outcome.FAILED
    assert outcome.message == (
        "sampler.walkers: 65 walkers cannot be shared evenly by 2 devices; use 1 "
        "(resources.gpus, or CUDA_VISIBLE_DEVICES), or, in a new run, a multiple of 2 walkers"
    )
    assert "Traceback" not in log


def test_a_diverging_run_ends_as_such_and_keeps_the_last_finite_state(tmp_path: Path) -> None:
    """An absurd step size: exit code 7, advice, and no number in the store that is not finite."""
    wild = "[optimizer]\nlearning_rate = 1e25\nnorm_constraint = 1e60"
    once = "[train]\nrollbacks = 1"
    run = make_run(tmp_path, HELIUM.replace("[optimizer]", wild).replace("[train]", once))
    code, _ = finish(start_fake(run))
    outcome = run.read_outcome()
    assert code == 7
    assert outcome is not None
    assert outcome.outcome is Outcome.DIVERGED
    assert "after 1 rollbacks" in outcome.message
    assert "optimizer.learning_rate" in outcome.message
    store = RunStore.open(run.store_path)
    assert len(store.rollbacks) == 1
    assert store.n_committed["train"] < 60
    assert np.isfinite(store.series("train")["energy"]).all()


@pytest.mark.slow
def test_a_second_worker_is_turned_away(tmp_path: Path) -> None:
    """The first one's work goes on; the second names it and touches nothing."""
    run = make_run(tmp_path, HELIUM.replace("steps = 60", "steps = 100000"))
    first = start_fake(run)
    has_begun = has_committed(run, "train", 1)
    while not has_begun():
        assert first.poll() is None
    code, log = finish(start_fake(run))
    assert code == 1
    assert f"already being run by pid {first.pid}" in log
    assert "Traceback" not in log
    assert signal_when(first, signal.SIGTERM, lambda: True) == 75


@pytest.mark.slow
def test_xarray_reads_a_store_while_it_grows_and_when_it_is_done(
    undisturbed_fake: RunDir, tmp_path: Path
) -> None:
    """Labelled energies with units, by the field's own tool; NaN where nothing is yet."""
    run = make_run(tmp_path, HELIUM.replace("steps = 60", "steps = 100000"))
    worker = start_fake(run)
    has_begun = has_committed(run, "train", 3)
    while not has_begun():
        assert worker.poll() is None
    live = xarray.open_zarr(str(run.store_path), group="train", consolidated=False)
    assert live.sizes == {"step": 100000}
    assert 3 <= int(live.energy.notnull().sum()) < 100000
    assert signal_when(worker, signal.SIGTERM, lambda: True) == 75
    done = xarray.open_zarr(str(undisturbed_fake.store_path), group="evaluate", consolidated=False)
    assert done.energy.dims == ("step",)
    assert done.energy.attrs["units"] == "hartree"
    assert done.step.values.tolist() == list(range(1, 61))
    assert bool(done.energy.notnull().all())


def test_what_a_run_was_made_with_is_recorded(undisturbed: RunDir) -> None:
    """Versions, devices and precision stand in the store."""
    provenance = RunStore.open(undisturbed.store_path).attrs["provenance"]
    assert provenance["matmul_precision"] == "highest"
    assert provenance["dtype"] == "float32"
    packages = {"jax", "jaxlib", "flax", "optax", "kfac-jax", "pyscf", "numpy", "zarr"}
    versions = {name: version(name) for name in packages} | {"vmcjob": __version__}
    assert provenance["versions"] == versions
    assert json.dumps(provenance)


@pytest.mark.slow
def test_the_time_of_an_attempt_that_ended_without_a_word_is_not_forgotten(tmp_path: Path) -> None:
    """Its heartbeat says how long it worked, and is another's soon."""
    run = make_run(tmp_path)
    worker = start_fake(run)
    wait_until(lambda: (beat := run.read_heartbeat()) and beat.phase is Activity.TRAIN, "it trains")
    worker.kill()
    worker.communicate()
    beat = run.read_heartbeat()
    assert beat is not None
    code, log = finish(start_fake(run))
    assert code == 0, log
    first, lost, *others = run.read_attempts()
    assert [line["event"] for line in (first, lost, *others)] == ["start", "lost", "start", "end"]
    assert (lost["time"], lost["worker_pid"], lost["pid"]) == (beat.time, beat.pid, beat.pid)
    seconds = beat.time - float(str(first["time"]))
    assert work(run.read_attempts()[:2]).seconds == pytest.approx(seconds)
