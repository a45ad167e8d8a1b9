"""Commands after `resume --more-training`: the newer runs are meant, and the others are named."""

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cli.shell import finish
from tests.runs import make_record
from vmcjob.cli import plot
from vmcjob.cli.app import app
from vmcjob.rundir import Outcome, OutcomeRecord, Process, RunDir, Submission
from vmcjob.runs.ancestry import trained_from
from vmcjob.spec import dump_spec, parse_spec

SPEC = 'name = "h2"\n[system]\natoms = [["H", 0, 0, 0], ["H", 0, 0, 1.4]]\n'
OLD, NEW, OTHER = (f"h2-000000000{number}" for number in range(3))


def make_run(root: Path, run_id: str, tables: str = "", **changes: object) -> RunDir:
    """A run with a log, which trains on from the run that its tables name."""
    (point,) = parse_spec(SPEC + tables, "h2.toml").points
    run = RunDir.create(root, make_record(run_id, **changes), dump_spec(point.spec))
    run.log_path.write_text(f"log of {run_id}\n")
    return run


@pytest.fixture
def vmcjob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The commands in this process, with a finished run and a new run that trains on from it."""
    monkeypatch.chdir(tmp_path)
    for name in ("PATH", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("VMCJOB_SITE", raising=False)
    finish(make_run(tmp_path / "runs", OLD, created=1.0))
    make_run(tmp_path / "runs", NEW, f'[train]\nstart_from = "{OLD}"\n', created=2.0)

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, words)

    return run


def ids(done: Result) -> list[str]:
    return [line.split()[0] for line in done.stdout.splitlines()[1:]]


def test_status_hides_the_replaced_run_and_says_how_to_see_it(vmcjob) -> None:
    """Both looked alike, so that a curve of ten distances had twenty lines."""
    words = f"left out: {OLD}  trained on in {NEW}; --all shows it\n"
    for selectors in ((), ("h2",), ("h2-*",)):
        done = vmcjob("status", *selectors)
        assert (ids(done), done.stderr) == ([NEW], words)
    for selectors in (("--all",), (OLD, NEW), ("--tree",)):
        done = vmcjob("status", *selectors)
        assert (ids(done)[0], "left out" in done.stderr) == (OLD, False)
    assert vmcjob("status", "--all").stdout.splitlines()[1].endswith(f"trained on in {NEW}")
    found = json.loads(vmcjob("status", "--json").stdout)["runs"]
    assert [(row["run_id"], row["replaced_by"]) for row in found] == [(OLD, NEW), (NEW, None)]
    for selectors in (("--state", "new"), (OLD,)):  # nothing is hidden that was not asked for
        assert vmcjob("status", *selectors).stderr == ""


def test_a_replaced_run_that_has_not_finished_is_shown(vmcjob, tmp_path: Path, monkeypatch) -> None:
    """A longer evaluation of the replaced run was hidden while queued, and when it had failed."""
    finish(RunDir(tmp_path / "runs" / NEW))
    longer = make_run(tmp_path / "runs", OTHER, created=3.0)
    longer.store_path.mkdir()
    past = {"provenance": {"continues": {"run_id": OLD}}, "target": {"step": 2000}}
    (longer.store_path / "zarr.json").write_text(json.dumps({"attributes": past}))
    here = Process.of_pid(os.getpid())
    queue = {"host": here.host, "pid": here.pid, "process_start": here.start}
    longer.write_submission(Submission(scheduler="local", job_id="local-1", **queue))
    assert ids(vmcjob("status")) == [NEW, OTHER]
    assert ids(vmcjob("status", "--state", "queued")) == [OTHER]
    assert f"names 2 runs ({NEW}, {OTHER})" in vmcjob("logs", "h2").stderr
    endings = [OutcomeRecord(outcome=Outcome.FAILED)]  # for one pause; a second one is an error

    def fail(seconds: float) -> None:
        longer.submission_path.unlink()
        longer.write_outcome(endings.pop())

    monkeypatch.setattr(time, "sleep", fail)
    assert "failed" in vmcjob("status", "--watch").stdout
    assert [vmcjob("status", "--check", *o).exit_code for o in ((), ("--json",))] == [3, 3]


@pytest.mark.parametrize(
    ("system", "training", "point", "shown"),
    [
        ("", "", {"R": 2.0}, [NEW, OTHER]),
        ("charge = 1\nspin = 1\n", "", {"R": 1.4}, [NEW, OTHER]),
        ("", "steps = 0\n", {"R": 1.4}, [NEW, OTHER]),
        ("reference = -1.17\n", "", {"R": 1.4}, [OTHER]),
    ],
)
def test_only_more_training_of_the_same_system_replaces_a_run(
    vmcjob, tmp_path: Path, system: str, training: str, point: dict[str, float], shown: list[str]
) -> None:
    """A link of a chain, an ion and an evaluation start from a run too, and both count."""
    tables = f'{system}[train]\nstart_from = "{NEW}"\n{training}'
    finish(RunDir(tmp_path / "runs" / NEW))
    make_run(tmp_path / "runs", OTHER, tables, created=3.0, point=point)
    assert ids(vmcjob("status")) == shown


def test_logs_and_show_take_the_newest(vmcjob, tmp_path: Path) -> None:
    """The name was refused, although only one of its runs is what the user works on."""
    done = vmcjob("logs", "h2")
    assert (done.exit_code, done.stdout) == (0, f"log of {NEW}\n")
    assert done.stderr == f"left out: {OLD}  trained on in {NEW}; vmcjob status --all lists it\n"
    assert vmcjob("logs", OLD).stdout == f"log of {OLD}\n"
    assert vmcjob("show", "h2").stdout.split()[1] == NEW
    make_run(tmp_path / "runs", OTHER, created=3.0, seed=1)
    assert f"names 2 runs ({NEW}, {OTHER})" in vmcjob("logs", "h2").stderr


def test_plot_draws_the_newest_that_can_be_drawn(vmcjob, tmp_path: Path, monkeypatch) -> None:
    """A new run without results has no picture yet, so the run before is drawn too."""
    drawn: list[str] = []
    monkeypatch.setattr(plot, "_plot_one", lambda run, path: drawn.append(run.path.name))
    vmcjob("plot", "h2")
    finish(RunDir(tmp_path / "runs" / NEW))
    done = vmcjob("plot", "h2")
    vmcjob("plot", OLD)
    assert drawn == [OLD, NEW, NEW, OLD]
    assert done.stderr == f"left out: {OLD}  trained on in {NEW}; vmcjob status --all lists it\n"


def test_a_wrong_run_is_refused_before_anything_is_read(vmcjob, monkeypatch) -> None:
    """Minutes of reading stores, or a list of other mistakes, came before the wrong name."""
    Path("bad.toml").write_text("no TOML [")
    done = vmcjob("submit", "bad.toml", "--after", "li-1")
    assert (done.exit_code, done.stderr) == (
        4,
        "no run matches 'li-1' in runs; vmcjob status lists all runs\n",
    )
    for name in ("vmcjob.cli.results", "vmcjob.cli.curve"):
        monkeypatch.setattr(f"{name}.make_energies", None)
    done = vmcjob("aggregate", "--explain", "li-1")
    assert (done.exit_code, "no run matches 'li-1'" in done.stderr) == (4, True)
    words = "there is no energy of li; there are: h2\n"
    done = vmcjob("aggregate", "--diff", "2*li - h2")
    assert (done.exit_code, done.stderr) == (2, f"--diff: {words}")
    done = vmcjob("plot", "h2", "--curve", "--fragments", "2*li")
    assert (done.exit_code, done.stderr) == (2, f"--fragments: {words}")


@pytest.mark.parametrize(("steps", "origin"), [(10, OLD), (0, None)])
def test_a_run_without_training_takes_no_run_s_place(
    tmp_path: Path, steps: int, origin: str | None
) -> None:
    """Such a run hid the verdict of its origin."""
    make_run(tmp_path, OLD)
    run = make_run(tmp_path, NEW, f'[train]\nstart_from = "{OLD}"\nsteps = {steps}\n')
    assert trained_from(run) == origin


@pytest.mark.parametrize(("distance", "origin"), [("1.4", OLD), ("1.5", None)])
def test_one_system_in_other_words_is_the_same(
    tmp_path: Path, distance: str, origin: str | None
) -> None:
    """Specs of earlier releases lack keys: their texts differ, and their systems do not."""
    old = make_run(tmp_path, OLD)
    lines = old.read_spec_text().replace("1.4", distance).splitlines(keepends=True)
    old.spec_path.write_text("".join(line for line in lines if not line.startswith("charge =")))
    assert old.read_spec_text().count("\n") == len(lines) - 1
    run = make_run(tmp_path, NEW, f'[train]\nstart_from = "{OLD}"\nsteps = 10\n')
    assert trained_from(run) == origin
