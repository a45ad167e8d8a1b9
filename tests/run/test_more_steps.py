"""A finished run whose evaluation goes on, in a run of its own."""

import json
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from tests.cli.shell import Shell, fake_shell
from tests.run import fake
from tests.run.harness import HELIUM, assert_same, finish, make_run, results, start
from vmcjob.analysis import aggregate
from vmcjob.errors import SpecError, StoreError, UsageError
from vmcjob.plan import Plan, Task, make_longer, make_plan, make_trained_on
from vmcjob.rundir import RunDir, list_runs
from vmcjob.scheduler import require_starts
from vmcjob.scheduler.records import create_run
from vmcjob.spec import parse_spec
from vmcjob.store import RunStore

SHORT = HELIUM.replace("60", "20")
LONG = SHORT.replace("[evaluate]\nsteps = 20", "[evaluate]\nsteps = 40")


def plan_of(text: str) -> tuple[Plan, Task]:
    plan = make_plan(parse_spec(text, "he.toml"))
    return plan, plan.tasks[0]


def lengthen(short: RunDir, text: str, more_steps: int) -> RunDir:
    """The directory of the run that goes on from a finished one."""
    plan, task = plan_of(text)
    longer = make_longer(task, more_steps)
    require_starts(short.path.parent, [Plan(plan.source, (longer,))])
    return create_run(short.path.parent, plan.source, longer)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run = make_run(tmp_path_factory.mktemp("runs"), SHORT)
    code, log = finish(start(run))
    assert code == 0, log
    return run


@pytest.fixture(scope="module")
def fake_template(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run = make_run(tmp_path_factory.mktemp("fake"), SHORT)
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    return run


@pytest.fixture
def finished(tmp_path: Path, fake_template: RunDir) -> RunDir:
    """A finished run of the fake calculation of one's own."""
    return RunDir(copytree(fake_template.path, tmp_path / "runs" / fake_template.path.name))


@pytest.fixture
def really_finished(tmp_path: Path, template: RunDir) -> RunDir:
    """A finished run of one's own."""
    return RunDir(copytree(template.path, tmp_path / "runs" / template.path.name))


@pytest.mark.slow
def test_a_longer_evaluation_is_that_of_a_longer_run(tmp_path: Path, finished: RunDir) -> None:
    """Its series and its last state; of its snapshots, the first three are the shorter one's."""
    before = results(finished)
    longer = lengthen(finished, SHORT, 20)
    uninterrupted = make_run(tmp_path / "whole", LONG)
    assert longer.path.name == uninterrupted.path.name
    for run in (longer, uninterrupted):
        code, log = finish(start(run, program=fake.PROGRAM))
        assert code == 0, log
    found, expected = results(longer), results(uninterrupted)
    snapshots = {"snapshots/step", "snapshots/r"}
    assert found["snapshots/step"].tolist() == [6, 13, 20, 26, 33, 40]
    assert np.isfinite(found["snapshots/r"]).all()
    for name in (found.keys() | expected.keys()) - snapshots:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert_same(results(finished), before)
    provenance = RunStore.open(longer.store_path).attrs["provenance"]
    wanted = {"run_id": finished.path.name, "step": 20, "snapshots": 3}
    assert provenance["continues"] == wanted


@pytest.mark.slow
def test_a_run_without_an_evaluation_gets_one(tmp_path: Path) -> None:
    """Walkers equilibrated first, as if it had been asked for from the start."""
    short = SHORT.replace("[evaluate]\nsteps = 20", "[evaluate]\nsteps = 0")
    run, uninterrupted = make_run(tmp_path / "runs", short), make_run(tmp_path, SHORT)
    assert finish(start(run, program=fake.PROGRAM))[0] == 0
    longer = lengthen(run, short, 20)
    for each in (longer, uninterrupted):
        code, log = finish(start(each, program=fake.PROGRAM))
        assert code == 0, log
    assert_same(results(longer), results(uninterrupted))


def test_lost_rows_are_not_passed_on(finished: RunDir) -> None:
    """A chunk that is gone reads as NaN; nothing is made."""
    (finished.store_path / "evaluate" / "energy" / "c" / "0").unlink()
    with pytest.raises(StoreError, match="rows 1 to 20 of evaluate/energy are missing"):
        lengthen(finished, SHORT, 20)
    assert list_runs(finished.path.parent) == [finished]


def test_a_damaged_checkpoint_is_told_of(
    finished: RunDir, caplog: pytest.LogCaptureFixture
) -> None:
    """The other slot's serves: more is computed again, and the user knows why."""
    slot = finished.store_path / "checkpoint" / f"slot{active_slot(finished)}" / "c" / "0"
    slot.write_bytes(bytes(len(slot.read_bytes())))
    longer = lengthen(finished, SHORT, 20)
    assert "going on from the other one" in caplog.text
    assert finish(start(longer, program=fake.PROGRAM))[0] == 0
    assert RunStore.open(longer.store_path).n_committed["evaluate"] == 40


def active_slot(run: RunDir) -> int:
    return int(RunStore.open(run.store_path).attrs["active_slot"])


@pytest.mark.full_matrix  # the command, below, takes the same way
@pytest.mark.slow
def test_what_a_run_started_from_goes_with_it(tmp_path: Path, really_finished: RunDir) -> None:
    """So that it can be begun anew even when the run at the very beginning is gone."""
    text = SHORT.replace("[pretrain]\nsteps = 0\n", "").replace(
        "[train]", f'[train]\nstart_from = "{really_finished.path.name}"'
    )
    plan, task = plan_of(text)
    second = create_run(really_finished.path.parent, plan.source, task)
    assert finish(start(second))[0] == 0
    really_finished.path.rename(tmp_path / "gone")
    longer = lengthen(second, text, 5)
    assert longer.start_path.exists()
    code, log = finish(start(longer))
    assert code == 0, log


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(SpecError, match=r"he-.* with --more-steps 10000000000.*evaluate\.steps"):
        make_longer(plan_of(SHORT)[1], 10**10)


def test_only_what_has_finished_goes_on(tmp_path: Path) -> None:
    """From the command line, and nothing is written."""
    shell = Shell(tmp_path)
    plan, task = plan_of(SHORT)
    run = create_run(shell.runs, plan.source, task)
    refused = shell.run("resume", "he", "--more-steps", "20")
    assert refused.returncode == UsageError.exit_code
    words = "--more-steps, --more-training and --target-error are for finished runs"
    assert f"{run.path.name}: new; {words}" in refused.stderr
    assert [path.name for path in shell.runs.iterdir()] == [run.path.name]


@pytest.mark.slow
def test_from_the_command_line_a_finished_run_goes_on(tmp_path: Path, finished: RunDir) -> None:
    """First as a dry run, which writes nothing; by its id, a second time does nothing."""
    shell = fake_shell(tmp_path)
    again = ("resume", "he", "--more-steps", "20")
    longer = RunDir(shell.runs / plan_of(LONG)[1].run_id)
    dry = json.loads(shell.run(*again, "--dry-run", "--json").stdout)
    assert [item["run_id"] for item in dry["submitted"]] == [longer.path.name]
    assert list_runs(shell.runs) == [finished]
    done = shell.run(*again, "--follow")
    assert done.returncode == 0, done.stderr
    assert RunStore.open(longer.store_path).n_committed["evaluate"] == 40
    by_id = ("resume", finished.path.name, "--more-steps", "20")
    assert "skipped: finished" in shell.run(*by_id).stdout
    (further,) = json.loads(shell.run(*again, "--dry-run", "--json").stdout)["submitted"]
    assert further["run_id"] not in (finished.path.name, longer.path.name)
    table = json.loads(shell.run("aggregate", "--json").stdout)
    assert [row["run_ids"] for row in table["rows"]] == [[longer.path.name]]
    reason = f"all of it is in {longer.path.name}"
    assert table["contained"] == [{"run_id": finished.path.name, "reason": reason}]


@pytest.mark.slow
def test_a_finished_run_trains_on_in_a_run_of_its_own(finished: RunDir) -> None:
    """It begins with the parameters and walkers of the other, which stays as it is."""
    before = results(finished)
    plan, task = plan_of(SHORT)
    further = make_trained_on(task, 30)
    require_starts(finished.path.parent, [Plan(plan.source, (further,))])
    run = create_run(finished.path.parent, plan.source, further)
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    assert_same(before, results(finished))
    store = RunStore.open(run.store_path)
    assert store.n_committed["train"] == 30
    assert store.n_committed["evaluate"] == 20
    assert store.attrs["provenance"]["start_from"]["run_id"] == finished.path.name
    table = aggregate(runs=finished.path.parent)
    assert table.excluded == ()
    (row,) = table.rows
    assert row.run_ids == (run.path.name,)
    again = json.loads(Shell(finished.path.parents[1]).run("aggregate", "--json").stdout)
    assert again["contained"] == [
        {"run_id": finished.path.name, "reason": f"trained on in {run.path.name}"}
    ]
