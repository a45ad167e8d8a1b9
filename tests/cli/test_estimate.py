"""The command `estimate`: sizes, history of like runs, and what follows from a calibration."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.shell import Shell, finish
from tests.runs import make_run
from vmcjob.cli.app import app
from vmcjob.cli.asking import ask_for
from vmcjob.cli.calibrate import Calibration, calibrate, hours_of, most_walkers, read_calibration
from vmcjob.cli.estimate import _document, _time_words
from vmcjob.plan import Task
from vmcjob.runs.history import SAME_COST, SAME_SCIENCE, find_like
from vmcjob.spec import JobSpec, dump_spec, parse_spec
from vmcjob.spec.optimizer import Adam
from vmcjob.spec.size import measure

SPEC = """
name = "h2"
[system]
atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, {distance}]]
[sampler]
walkers = {walkers}
[train]
steps = 1000
[evaluate]
steps = {steps}
"""


def make_spec(distance: float = 1.4, walkers: int = 64, steps: int = 1000) -> JobSpec:
    text = SPEC.format(distance=distance, walkers=walkers, steps=steps)
    return parse_spec(text, "h2.toml").points[0].spec


def add_run(root: Path, number: int, spec: JobSpec, *, seconds: float, error: float = 2e-4) -> None:
    """A finished run of 100 steps of training and 400 of evaluation."""
    run = make_run(root, f"h2-{number:010}")
    run.write_spec_text(dump_spec(replace(spec, seed=number)))
    run.append_attempt("start", time=1e9)
    run.append_attempt("end", time=1e9 + seconds, outcome="FINISHED", peak_mb=2048.0)
    finish(run, error=error)
    attributes = {
        "n_committed": {"train": 100, "evaluate": 400},
        "provenance": {"devices": "2 × cpu"},
    }
    (run.store_path / "zarr.json").write_text(json.dumps({"attributes": attributes}))


def costlier(spec: JobSpec) -> Iterator[JobSpec]:
    """Specs whose steps cost more than those of a spec, each in its way."""
    yield replace(spec, sampler=replace(spec.sampler, steps=2 * spec.sampler.steps))
    yield replace(spec, train=replace(spec.train, spin_penalty=1.0))
    yield replace(spec, evaluate=replace(spec.evaluate, observables=("forces",)))
    yield replace(spec, system=replace(spec.system, ecp_points=12))


def test_a_like_run_differs_by_seed_and_steps_or_at_least_costs_the_same(tmp_path) -> None:
    """Another geometry costs the same; another number of walkers does not, nor half a run."""
    root = tmp_path / "runs"
    add_run(root, 0, make_spec(distance=2.0), seconds=10.0)
    add_run(root, 1, make_spec(walkers=128), seconds=99.0)
    make_run(root, "h2-0000000002").write_spec_text(dump_spec(make_spec()))
    found = find_like(root, make_spec())
    assert (found.rule, [like.run.path.name for like in found.runs]) == (
        SAME_COST,
        ["h2-0000000000"],
    )
    for other in costlier(make_spec()):  # the same science, or at least the same walkers
        assert find_like(root, other).runs == ()
    add_run(root, 3, make_spec(steps=50), seconds=20.0)
    found = find_like(root, make_spec())
    assert (found.rule, [like.run.path.name for like in found.runs]) == (
        SAME_SCIENCE,
        ["h2-0000000003"],
    )
    assert found.seconds_for(1000) == pytest.approx(40.0)  # 20 s for 500 steps
    assert found.steps_to(1e-4) == 1600  # half the error takes four times the 400 steps


def test_the_advice_for_a_cluster_is_one_and_a_half_times_the_use_of_like_runs(
    shell: Shell,
) -> None:
    """2000 steps at one step per second are 2000 s; with the margin, 50 min in tens of minutes."""
    add_run(shell.runs, 0, make_spec(), seconds=500.0)
    (shell.cwd / "h2.toml").write_text(SPEC.format(distance=1.4, walkers=64, steps=1000))
    done = shell.run("estimate", "--no-calibration", "h2.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "--time 00:50:00 --mem 3GB, extrapolated: 1.5 times the use of like runs\n" in done.stdout
    )
    assert f"1 run with {SAME_SCIENCE}: h2-0000000000\n" in done.stdout
    assert "2 × cpu\n" in done.stdout
    target = ("--set", "evaluate.target_error=1e-4", "--set", "evaluate.steps=10000")
    done = shell.run("estimate", "--json", "--no-calibration", "h2.toml", *target)
    document = json.loads(done.stdout)
    assert document["steps_to_target"] == 2715  # the second look at or above 1600 steps
    assert document["ask_time"] == "01:40:00"  # 3715 steps
    assert (document["hours"], document["phases"]) == (None, {})
    size = measure(make_spec())
    assert (document["parameters"], document["store_bytes"] > 0) == (size.parameters, True)


def test_without_a_like_run_nothing_is_made_up(shell: Shell) -> None:
    done = shell.run("estimate", "--no-calibration", "h.toml")
    assert "to ask for    not known: no finished run here has the same electrons" in done.stdout
    assert "2 runs; this is the largest\n" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--no-calibration", "--seconds", "9"), 2, "--seconds limits the calibration"),
        (("--no-calibration", "--runs", "rusn"), 4, "rusn: there is no such directory"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    monkeypatch, tmp_path, options: tuple[str, ...], code: int, words: str
) -> None:
    """A misspelt runs root had no like runs, and looked like one without any."""
    (tmp_path / "h2.toml").write_text(SPEC.format(distance=1.4, walkers=64, steps=10))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["estimate", "h2.toml", *options])
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith(words)


def make_calibration(program_bytes: int | None = 10**6, n_devices: int = 1) -> Calibration:
    """A machine with 1 GB, on which a training step takes 2 s and an evaluation step 1 s."""
    memory = {"memory_bytes": 10**9, "is_gpu": False}
    lines = [{"kind": "Machine", "devices": "cpu", "n_devices": n_devices, **memory}]
    costs = {"step_s": 2.0, "n_steps": 3, "compile_s": 0.0, "peak_bytes": 1}
    more = {"program_bytes": program_bytes}
    lines.append({"kind": "Measured", "phase": "train", **costs, **more})
    lines.append({"kind": "Measured", "phase": "evaluate", **costs, **more, "step_s": 1.0})
    return read_calibration("".join(f"{json.dumps(line)}\n" for line in lines) + '{"kind": "Me')


@pytest.mark.parametrize(
    ("target", "steps", "words", "hours"),
    [
        (1e-4, 5000, "about 1 h 55 min to target_error 0.0001, by the error of like runs", True),
        (1e-4, 1800, "extrapolated to evaluate.steps; target_error 0.0001 needs more", False),
        (None, 2000, "extrapolated to all steps", False),
    ],
)
def test_hours_to_a_target_are_those_until_it_is_reached(
    tmp_path, target: float | None, steps: int, words: str, hours: bool
) -> None:
    """A target beyond evaluate.steps was promised for the end of evaluate.steps."""
    spec = make_spec(steps=steps)
    spec = replace(spec, evaluate=replace(spec.evaluate, target_error=target))
    add_run(tmp_path, 0, make_spec(), seconds=500.0)
    asking, found = ask_for(find_like(tmp_path, spec), spec), make_calibration()
    assert words in _time_words(spec, found, asking)
    task = Task("h2-0", "h2", {}, 0, spec, "")
    assert (_document(task, 1, found, asking)["hours_to_target"] is not None) == hours
    beyond = "target_error 0.0001 needs about 2715 steps, more than evaluate.steps"
    assert asking.facts()["target"].startswith(beyond) == (target is not None and not hours)


def test_hours_are_those_of_all_phases() -> None:
    """Pretraining counts as training; moves count as evaluation only where they were not timed.

    A cut line does not count.
    """
    spec, found = make_spec(), make_calibration()
    n_train = spec.train.steps + spec.pretrain.steps
    n_moves = spec.sampler.warmup + spec.evaluate.warmup
    assert spec.pretrain.steps > 0
    assert hours_of(spec, found, 500) == pytest.approx((2.0 * n_train + 500 + n_moves) / 3600)
    assert hours_of(spec, Calibration(), 500) is None
    moves = {**found.phases["evaluate"], "step_s": 0.25}
    timed = replace(found, phases={"warmup": moves, **found.phases})
    hours = (2.0 * n_train + 500 + 0.25 * n_moves) / 3600
    assert hours_of(spec, timed, 500) == pytest.approx(hours)
    waiting = {**moves, "step_s": 3.0}  # where parameters respond to forces
    timed = replace(timed, phases={"equilibrate": waiting, **timed.phases})
    more = (3.0 - 0.25) * spec.evaluate.warmup / 3600
    assert hours_of(spec, timed, 500) == pytest.approx(hours + more)
    forced = replace(spec, evaluate=replace(spec.evaluate, observables=("forces",)))
    fitted = replace(timed, phases={"warmup": moves, **found.phases})  # the fit was not timed
    more = (2.0 - 0.25) * spec.evaluate.warmup / 3600
    assert hours_of(forced, fitted, 500) == pytest.approx(hours + more)
    untrained = replace(spec, train=replace(spec.train, steps=0))  # it is pretrained
    hours = (2.0 * spec.pretrain.steps + 500 + n_moves) / 3600
    assert hours_of(untrained, found, 500) == pytest.approx(hours)


def test_walkers_fill_the_memory_by_a_line_and_a_square() -> None:
    """SPRING, the default, has matrices of walkers by walkers; SR has not."""
    spec, found = make_spec(), make_calibration()
    size = measure(spec)
    fixed, square = 4 * size.parameters, 64
    slope = (10**6 - fixed - square * 64**2) / 64
    n = most_walkers(spec, size, found)
    assert n is not None
    assert (
        fixed + slope * n + square * n**2 <= 0.9e9 < fixed + slope * (n + 1) + square * (n + 1) ** 2
    )
    assert most_walkers(spec, size, make_calibration(None)) is None


def test_devices_share_the_memory_and_the_walkers() -> None:
    """Each of four devices has 250 MB. The program on a device has a quarter of the walkers.

    The memory of all devices for the program of one of them gave four times as many walkers.
    """
    spec, found = make_spec(), make_calibration(n_devices=4)
    spec = replace(spec, optimizer=Adam())
    size = measure(spec)
    fixed = 4 * size.parameters
    of_a_walker = (10**6 - fixed) / (64 / 4)
    n = most_walkers(spec, size, found)
    assert n == pytest.approx(4 * (0.9 * 2.5e8 - fixed) / of_a_walker, abs=1)


def test_a_calibration_ends_when_its_time_is_over(capsys) -> None:
    """A compilation of an hour would hold the shell for an hour."""
    found = calibrate(make_spec(), 0.01)
    assert found.phases == {}
    assert found.why_not == "the calibration was ended after 0.01 s; --seconds gives it more time"
    assert "calibrating for at most 0.01 s" in capsys.readouterr().err


def test_a_calibration_that_fails_leaves_the_sizes_and_an_exit_code(monkeypatch, tmp_path) -> None:
    """The last line of the process says why; a script notices the failure."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho noise >&2\necho 'no device to compute on' >&2\nexit 6\n")
    program.chmod(0o755)
    (tmp_path / "h2.toml").write_text(SPEC.format(distance=1.4, walkers=64, steps=10))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(program))
    done = CliRunner().invoke(app, ["estimate", "h2.toml"])
    assert done.exit_code == 1
    assert "least memory" in done.stdout
    assert done.stderr.endswith("the calibration failed: no device to compute on\n")
