"""show --parts, as users type it: where the time of a run's training step goes."""

import json
import signal
from pathlib import Path

import pytest

import vmcjob
from tests.cli.shell import Shell
from tests.run.harness import HELIUM, finish, make_run, signal_when, start
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
from vmcjob.spec import load_resolved
from vmcjob.store import Layout, RunStore, peek

SPRING = HELIUM.replace('kind = "sr"\ncg_iterations = 3', 'kind = "spring"')
LONG_PRETRAINING = SPRING.replace("steps = 0", 'steps = 100000\nbasis = "sto-3g"')
FLOAT64 = '[numerics]\ndtype = "float64"\n'
KFAC = HELIUM.replace('kind = "sr"\ncg_iterations = 3', 'kind = "kfac"')
OF_SPRING = ["sampling", "local energies", "scores", "Gram matrix", "solution", "rest"]
OF_SR = ["sampling", "local energies", "scores", "rest"]


def finished(shell: Shell, text: str = SPRING) -> RunDir:
    """A run with results, by a worker of its own."""
    run = make_run(shell.runs, text)
    code, log = finish(start(run))
    assert code == 0, log
    return run


def make_empty_store(run: RunDir) -> None:
    """Results as they are before the first commit."""
    spec_text = run.read_spec_text()
    spec = load_resolved(spec_text, "spec.toml")
    RunStore.create(
        run.store_path,
        run_id=run.path.name,
        spec_text=spec_text,
        provenance={},
        layout=Layout(spec.train.steps, spec.evaluate.steps, spec.sampler.walkers, 2, 1),
    )


def everything(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """All that is below a folder, the folder itself included: when it changed, and its bytes."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in (folder, *folder.rglob("*"))
    }


@pytest.mark.slow
def test_a_finished_run_has_a_table_of_its_parts_and_stays_as_it_was(shell: Shell) -> None:
    """Also while a worker holds its lock: nothing is waited for, nothing is written."""
    run = finished(shell)
    with run.lock():
        before = everything(shell.runs)
        done = shell.run("show", "he", "--parts")
        machine = shell.run("show", "he", "--parts", "--json")
        assert everything(shell.runs) == before
    assert done.returncode == 0, done.stderr
    head, whence, _, titles, *rows, _, ratio = done.stdout.splitlines()
    assert head.startswith(f"{run.path.name}: a training step of 64 walkers on 1 × ")
    assert whence == "from evaluate step 60 on"
    assert titles.split("  ")[0] == "part"
    assert titles.endswith("passes of log|psi|")
    assert [row.partition("  ")[0].strip() for row in rows] == [*OF_SPRING, "step"]
    assert ratio.startswith("step / floor  ")
    shares = [float(row.rpartition("%")[0].split()[-1]) for row in rows]
    assert shares[-1] == 100.0
    assert sum(shares[:-1]) == pytest.approx(100.0, abs=0.05 * len(shares))
    check_document(json.loads(machine.stdout), run)


def check_document(document: dict, run: RunDir) -> None:
    """Its keys, and that its numbers are those of one step."""
    parts = document.pop("parts")
    assert [part["name"] for part in parts] == OF_SPRING
    assert all(set(part) == {"name", "seconds", "share", "passes"} for part in parts)
    assert sum(part["share"] for part in parts) == pytest.approx(1.0)
    step, one_pass, floor = (document.pop(name) for name in ("step_s", "pass_s", "floor_s"))
    assert sum(part["seconds"] for part in parts) == pytest.approx(step)
    assert sum(part["seconds"] for part in parts[:-1]) == pytest.approx(floor)
    assert all(part["seconds"] > 0 for part in parts[:-1])
    for part in parts:
        assert part["passes"] == pytest.approx(part["seconds"] / one_pass)
    assert document.pop("step_over_floor") == pytest.approx(step / floor)
    assert "1 × " in document.pop("devices")
    assert document == {
        "schema_version": 1,
        "run_id": run.path.name,
        "phase": "evaluate",
        "step": 60,
        "walkers": 64,
    }


@pytest.mark.slow
def test_an_archived_run_in_float64_is_timed_on_as_many_devices_as_there_are(shell: Shell) -> None:
    """It was computed on one; walkers are shared anew by three only if they can be."""
    run = finished(shell, HELIUM + FLOAT64)
    done = shell.run("archive", "he", "--remove")
    assert (done.returncode, run.store_path.exists()) == (0, False), done.stderr
    flag = "--xla_force_host_platform_device_count"
    done = Shell(shell.cwd, {"XLA_FLAGS": f"{flag}=2"}).run("show", "he", "--parts", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["devices"].startswith("2 × ")
    assert [part["name"] for part in document["parts"]] == OF_SR
    done = Shell(shell.cwd, {"XLA_FLAGS": f"{flag}=3"}).run("show", "he", "--parts")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "sampler.walkers: 64 walkers cannot be shared evenly by 3 devices; use 2 "
        "(resources.gpus, or CUDA_VISIBLE_DEVICES), or, in a new run, a multiple of 3 walkers\n"
    )


@pytest.mark.slow
def test_a_run_in_pretraining_has_a_training_step_too(shell: Shell) -> None:
    """Its parameters are there, and what its optimizer remembers is that of another one."""
    run = make_run(shell.runs, LONG_PRETRAINING)

    def has_checkpoint() -> bool:
        return (peek.attributes(run.store_path) or {}).get("active_slot") is not None

    signal_when(start(run), signal.SIGTERM, has_checkpoint)
    done = shell.run("show", "he", "--parts", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["phase"] == "pretrain"
    assert [part["name"] for part in document["parts"]] == OF_SPRING


def test_a_run_that_has_not_begun_has_no_step_to_time(shell: Shell) -> None:
    """Neither before there is a store, nor before its first commit."""
    run = make_run(shell.runs, SPRING)
    path = run.path.relative_to(shell.cwd)
    sentence = f"{path}: has no results yet; its steps can be timed from its first commit on\n"
    done = shell.run("show", "he", "--parts")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", sentence)
    make_empty_store(run)
    done = shell.run("show", "he", "--parts", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", sentence)


def test_a_finished_run_without_its_results_says_that_they_are_lost(shell: Shell) -> None:
    run = make_run(shell.runs, SPRING)
    run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
    path = run.path.relative_to(shell.cwd)
    reason = "its results are missing or damaged; vmcjob rerun begins it anew"
    done = shell.run("show", "he", "--parts")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{path}: finished, but {reason}\n"


@pytest.mark.slow
def test_damaged_results_are_told_of_in_a_sentence(shell: Shell) -> None:
    """One lost slot is a warning, and what is in the other is timed; two are an error."""
    run = finished(shell)
    newest = (peek.attributes(run.store_path) or {})["active_slot"]
    files = [run.store_path / f"checkpoint/slot{number}/c/0" for number in (newest, 1 - newest)]
    files[0].write_bytes(b"")
    done = shell.run("show", "he", "--parts")
    assert done.returncode == 0, done.stderr
    assert f"checkpoint slot {newest} is damaged" in done.stderr
    files[1].write_bytes(b"")
    done = shell.run("show", "he", "--parts")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no checkpoint is readable (slot" in done.stderr
    assert done.stderr.count("\n") == 1


def test_kfac_that_is_not_there_is_one_sentence(shell: Shell) -> None:
    """The run may come from a machine that has it."""
    make_empty_store(make_run(shell.runs, KFAC))
    lost = "raise ModuleNotFoundError('gone', name='kfac_jax')\n"
    (shell.cwd / "elsewhere").mkdir()
    (shell.cwd / "elsewhere" / "kfac_jax.py").write_text(lost)
    package = Path(vmcjob.__file__).parents[1]
    path = f"{shell.cwd / 'elsewhere'}:{package}"
    done = Shell(shell.cwd, {"PYTHONPATH": path}).run("show", "he", "--parts")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "optimizer.kind: kfac-jax is not installed; pip install 'kfac-jax>=0.0.8', "
        "or choose spring\n"
    )
