"""What is beside science can be added and corrected after a run, by submitting again."""

import json

import pytest

from tests.cli.shell import Shell, busy_slot
from tests.cli.test_lost_files import lengthen, make_finished
from vmcjob.plan import make_plan
from vmcjob.rundir import RunDir, list_runs
from vmcjob.spec import dump_spec, load_resolved, parse_spec

SPEC = """
name = "h2"
[system]
atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]
{reference}
[evaluate]
steps = 400
"""
OLD, NEW = "reference = -1.0", "reference = -1.174476"


def write_spec(shell: Shell, reference: str, more: str = "") -> None:
    (shell.cwd / "h2.toml").write_text(SPEC.format(reference=reference) + more)


@pytest.fixture
def finished(shell: Shell) -> RunDir:
    """A finished run of the spec, with a reference that is wrong."""
    plan = make_plan(parse_spec(SPEC.format(reference=OLD), "h2.toml"))
    (task,) = plan.tasks
    run = make_finished(
        shell.runs, task.run_id, name="h2", point={}, science_sha256=task.science_sha256
    )
    run.write_spec_text(dump_spec(task.spec))
    return run


def reference_of(run: RunDir) -> float | None:
    return load_resolved(run.read_spec_text(), "spec.toml").system.reference


@pytest.mark.parametrize(("reference", "value"), [(NEW, -1.174476), ("", None)])
def test_a_reference_is_corrected_by_submitting_again(shell, finished, reference, value) -> None:
    write_spec(shell, reference)
    finished.write_origins({"system.reference": "old.toml:1", "name": "old.toml:2"})
    dry = shell.run("submit", "-n", "h2.toml").stdout
    words = "finished; would take over system.reference"
    line, _, keys = dry.partition("\n")
    assert line == f"# would be skipped: runs/{finished.path.name}, {words}"
    assert load_resolved(keys, "dry.toml").system.reference == value  # keys are shown in any case
    assert reference_of(finished) == -1.0
    done = shell.run("submit", "h2.toml")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()[1:]
    assert line == (
        f"{finished.path.name}  skipped: finished; took over system.reference  "
        f"runs/{finished.path.name}"
    )
    assert reference_of(finished) == value
    new = {"system.reference": "h2.toml:5"} if value else {}
    assert finished.read_origins() == {"name": "old.toml:2", **new}
    (row,) = json.loads(shell.run("aggregate", "--json").stdout)["rows"]
    assert row["reference"] == value
    (line,) = shell.run("submit", "h2.toml").stdout.splitlines()[1:]
    assert line == f"{finished.path.name}  skipped: finished  runs/{finished.path.name}"


def test_runs_that_go_on_from_it_follow(shell: Shell, finished: RunDir) -> None:
    """It is the longest of them that aggregate shows."""
    longer = lengthen(finished, "h2-ffffffffff", 100)
    longer.write_spec_text(finished.read_spec_text().replace("steps = 400", "steps = 500"))
    write_spec(shell, NEW)
    shell.run("submit", "h2.toml")
    assert reference_of(longer) == -1.174476
    assert load_resolved(longer.read_spec_text(), "spec.toml").evaluate.steps == 500


def test_what_is_queued_takes_over_no_more_than_its_reference(shell: Shell) -> None:
    """Its job was submitted with other resources, and its worker may be reading them."""
    write_spec(shell, OLD)
    with busy_slot(shell.runs):
        shell.run("submit", "h2.toml")
        (run,) = list_runs(shell.runs)
        before = run.read_spec_text()
        write_spec(shell, NEW, '[resources]\ntime = "10:00:00"\n')
        (line,) = shell.run("submit", "h2.toml").stdout.splitlines()[1:]
        assert "skipped: queued; took over system.reference  " in line
        assert run.read_spec_text() == before.replace("reference = -1.0", NEW)


def test_a_changed_spec_says_what_makes_it_another_calculation(shell, finished) -> None:
    """The name is the same and the run is not: a slip of the pen would cost days unseen."""
    text = SPEC.format(reference=OLD)
    (shell.cwd / "h2.toml").write_text(f"{text}\n[sampler]\nwalkers = 64\n")
    done = shell.run("submit", "-n", "h2.toml")
    assert done.returncode == 0
    words = f"not the calculation of {finished.path.name}: sampler.walkers = 64 (was 512)"
    assert f"h2.toml: {words}\n" in done.stderr
    (shell.cwd / "h2.toml").write_text(text)
    assert "not the calculation" not in shell.run("submit", "-n", "h2.toml").stderr
