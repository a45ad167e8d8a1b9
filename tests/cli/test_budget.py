"""Budgets, as users meet them."""

import json

import pytest

from tests.cli.shell import fake_shell
from tests.test_budget import charge
from vmcjob.plan import make_plan
from vmcjob.rundir import Group, Outcome, OutcomeRecord, RunDir, list_runs
from vmcjob.scheduler.records import make_record
from vmcjob.spec import dump_spec, parse_spec

SPEC = """
name = "b"
seeds = [0, 1]
system.atoms = [["H", 0.0, 0.0, 0.0]]
budget.gpu_hours = 2
"""
SMALL = """
sampler = { walkers = 8, steps = 2, warmup = 5 }
pretrain.steps = 20
ansatz = { kind = "slater-jastrow", determinants = 1 }
train.steps = 20
evaluate = { steps = 500, warmup = 5 }
output.flush_seconds = 0.2
"""


def make_exhausted(shell) -> list[RunDir]:
    """As a submission leaves them whose budget was used up at once."""
    runs = []
    for task in make_plan(parse_spec(SPEC, "b.toml")).tasks:
        run = RunDir.create(shell.runs, make_record("b.toml", task), dump_spec(task.spec))
        run.write_outcome(OutcomeRecord(outcome=Outcome.EXHAUSTED, message="used up"))
        runs.append(run)
    charge(runs[0], 3.0)
    Group(devices=dict.fromkeys([run.path.name for run in runs], 1.0), gpu_hours=2.0).write(
        shell.runs
    )
    return runs


def test_a_budget_is_shown_before_anything_is_used(shell):
    (shell.cwd / "b.toml").write_text(SPEC)
    done = shell.run("submit", "--local", "-n", "b.toml")
    assert done.returncode == 0, done.stderr
    assert "\nbudget: 0 of 2 GPU hours used by its 2 runs\n" in done.stderr
    assert not shell.runs.exists()


def test_a_budget_that_cannot_be_read_is_told(shell):
    runs = make_exhausted(shell)
    (path,) = (shell.runs / ".groups").glob("*.json")
    path.write_text(path.read_text()[:20])
    done = shell.run("resume", "-n", "--local", runs[0].path.name)
    assert done.returncode == 0, done.stderr
    words = "damaged, so no budget limits its runs; remove it and submit their spec again"
    assert f"warning: runs/.groups/{path.name}: {words}\n" in done.stderr


def test_a_budget_that_is_used_up_is_told_by_every_command(shell):
    (shell.cwd / "b.toml").write_text(SPEC)
    runs = make_exhausted(shell)
    done = shell.run("submit", "--local", "b.toml")
    assert done.returncode == 0, done.stderr
    assert "budget: 3 of 2 GPU hours used by its 2 runs" in done.stderr
    assert done.stdout.count("skipped: its submission has used 3 of 2 GPU hours; raise") == 2
    shown = shell.run("show", runs[0].path.name)
    assert "budget     3 of 2 GPU hours used by its 2 runs\n" in shown.stdout
    document = json.loads(shell.run("show", "--json", runs[0].path.name).stdout)
    assert document["state"] == "EXHAUSTED"
    assert document["group"]["devices"] == {run.path.name: 1.0 for run in runs}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_budget_ends_in_the_middle_of_a_sweep_and_a_larger_one_goes_on(shell):
    """Nothing is lost: what was committed is gone on from, and aggregated as it stands."""
    shell = fake_shell(shell.cwd)
    path = shell.cwd / "b.toml"
    path.write_text(SPEC.replace("gpu_hours = 2", "gpu_hours = 0.0005") + SMALL)
    done = shell.run("submit", "--local", "--follow", "b.toml")
    assert done.returncode == 3, done.stderr
    assert "exhausted" in done.stdout
    first, second = list_runs(shell.runs)
    assert first.read_heartbeat() is not None
    assert second.read_heartbeat() is None
    path.write_text(path.read_text().replace("0.0005", "5"))
    done = shell.run("submit", "--local", "--follow", "b.toml")
    assert done.returncode == 0, done.stderr
    events = [line["event"] for line in first.read_attempts()]
    assert events == ["start", "end", "start", "end"]
    table = json.loads(shell.run("aggregate", "--json").stdout)
    assert [row["seeds"] for row in table["rows"]] == [[0, 1]]
