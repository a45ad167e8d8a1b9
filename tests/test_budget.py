"""What runs may cost together: the launchers and supervisors are real, SLURM's programs are not."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runs import make_run, wait_until
from tests.scheduler.worlds import COMMAND, LocalWorld, submit_plans
from tests.submissions import submit_here
from tests.test_supervisor import slurm
from vmcjob import scheduler
from vmcjob.plan import Plan, make_longer, make_plan
from vmcjob.rundir import (
    Activity,
    Group,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    RunDir,
    Submission,
    find_groups,
)
from vmcjob.runs import budget
from vmcjob.runs.budget import describe, n_failures, used_hours, why_not_begun, why_over
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.groups import drop_stopped, form_groups, write_groups
from vmcjob.slurm import SlurmJob
from vmcjob.spec import parse_spec
from vmcjob.supervisor import Supervisor

__all__ = ["slurm"]
JOB = SlurmJob("22_3", "25", 0)
NAMES = ["h2-0000000000", "h2-1111111111", "h2-2222222222"]
SPEC = """
name = "h"
seeds = {seeds}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[budget]
{budget}
"""


def plan(limits: str, n_seeds: int = 3) -> list[Plan]:
    """As many runs as seeds."""
    text = SPEC.format(seeds=list(range(n_seeds)), budget=limits)
    return [make_plan(parse_spec(text, "h.toml"))]


def charge(run: RunDir, hours: float) -> None:
    """Let it have been worked on for so long before."""
    lines = [{"event": "start", "time": 0.0}, {"event": "end", "time": 3600 * hours}]
    with open(run.attempts_path, "a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def make_group(root: Path, **limits: Any) -> tuple[Group, list[RunDir]]:
    """Three runs of two devices each."""
    runs = [make_run(root, name) for name in NAMES]
    group = Group(devices=dict.fromkeys(NAMES, 2.0), **limits)
    group.write(root)
    return group, runs


def submitted(run: RunDir, at: float, **changes) -> None:
    """Somebody has been asked to run it."""
    run.write_submission(Submission(scheduler="slurm", job_id="1", submitted_at=at, **changes))


def test_all_attempts_of_all_runs_are_added_up(tmp_path):
    group, runs = make_group(tmp_path, gpu_hours=6.0)
    assert (used_hours(tmp_path, group), why_over(tmp_path, group)) == (0.0, None)
    charge(runs[0], 1.0)
    charge(runs[0], 0.5)
    charge(runs[1], 1.25)
    assert used_hours(tmp_path, group) == pytest.approx(5.5)
    assert why_over(tmp_path, group) is None
    assert describe(tmp_path, group) == "5.5 of 6 GPU hours used by its 3 runs"
    charge(runs[2], 0.25)
    assert why_over(tmp_path, group) == (
        "its submission has used 6 of 6 GPU hours; raise budget.gpu_hours in its spec and submit "
        "the spec again"
    )


def test_what_was_put_aside_has_been_paid_for_too(tmp_path):
    group, runs = make_group(tmp_path, gpu_hours=6.0)
    charge(runs[0], 1.0)
    record = runs[0].read_record()
    runs[0].start_over(record, 'name = "h2"\n')
    charge(runs[0], 0.5)
    assert used_hours(tmp_path, group) == pytest.approx(3.0)


def test_a_run_that_was_removed_counts_no_more(tmp_path):
    group, _ = make_group(tmp_path, gpu_hours=6.0)
    missing = replace(group, devices={**group.devices, "h2-3333333333": 1.0})
    assert used_hours(tmp_path, missing) == 0.0


def test_the_group_of_the_latest_submission_counts(tmp_path):
    group, _ = make_group(tmp_path, gpu_hours=6.0, submitted_at=10.0)
    larger = replace(group, devices={**group.devices, "h2-3": 1.0}, gpu_hours=9.0, submitted_at=9.0)
    larger.write(tmp_path)
    (tmp_path / ".groups" / "broken.json").write_text("{")
    text = f'{{"devices": {{"{NAMES[0]}": "two"}}, "submitted_at": 99.0}}'
    (tmp_path / ".groups" / "edited.json").write_text(text)
    assert find_groups(tmp_path, [NAMES[0], "h2-3", "h2-4"]) == {NAMES[0]: group, "h2-3": larger}
    replace(group, gpu_hours=7.0).write(tmp_path)
    assert find_groups(tmp_path, NAMES[:1])[NAMES[0]].gpu_hours == 7.0


def test_failures_of_this_submission_are_counted_and_none_before(tmp_path):
    group, runs = make_group(tmp_path, max_failures=2, submitted_at=100.0)
    for run, at in zip(runs[:2], (50.0, 200.0), strict=True):
        submitted(run, at, started_at=at + 1)
        run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, time=at + 2))
    assert n_failures(tmp_path, group) == 1
    assert why_not_begun(runs[2], group) is None
    submitted(runs[0], 150.0, started_at=151.0)
    assert why_not_begun(runs[2], group) == (
        "2 runs of its submission failed, and budget.max_failures is 2; correct the cause, then "
        "submit its spec again"
    )
    runs[2].write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=1, n_steps=9))
    assert why_not_begun(runs[2], group) is None, "what has begun goes on"


@pytest.fixture
def here(tmp_path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path / "runs")
    try:
        yield world
    finally:
        world.close()


def test_a_launcher_stops_what_has_no_budget_left_and_begins_nothing_more(here):
    first, *others = [item.run for item in submit_plans(here, *plan("gpu_hours = 2")).submitted]
    here.start(first)
    charge(others[1], 3.0)
    wait_until(lambda: examine(first).state is State.EXHAUSTED, "its worker has stopped")
    wait_until(lambda: {examine(run).state for run in others} == {State.EXHAUSTED}, "all ended")
    words = "its submission has used 3 of 2 GPU hours; raise budget.gpu_hours in its spec and "
    assert {examine(run).message for run in (first, *others)} == {words + "submit the spec again"}
    assert [run.read_heartbeat() for run in others] == [None, None]

    again = submit_plans(here, *plan("gpu_hours = 2"))
    assert {item.reason for item in again.skipped} == {words + "submit the spec again"}
    assert not again.submitted
    more = submit_plans(here, *plan("gpu_hours = 20"))
    assert [item.run for item in more.submitted] == [first, *others]
    here.start(first)
    (here.options.root / "gate").touch()
    wait_until(lambda: {examine(r).state for r in (first, *others)} == {State.FINISHED}, "done")


def test_a_resumed_run_keeps_the_budget_that_it_was_submitted_with(tmp_path):
    root = tmp_path / "runs"
    chosen = plan("gpu_hours = 2")
    group = Group(devices={task.run_id: 1.0 for task in chosen[0].tasks}, gpu_hours=2.0)
    runs = [RunDir.create(root, _record(chosen[0], i), "") for i in range(3)]
    group.write(root)
    charge(runs[0], 2.5)
    alone = Plan("h.toml", chosen[0].tasks[1:2], is_whole=False)
    receipt = submit_here(root, [alone], max_parallel=1, worker_command=COMMAND)
    assert [item.reason[:46] for item in receipt.skipped] == [
        "its submission has used 2.5 of 2 GPU hours; ra"
    ]
    assert find_groups(root, group.devices)[runs[1].path.name] == group


@pytest.mark.slow
def test_a_budget_that_is_changed_while_runs_work_counts_at_once(here):
    first, *others = [item.run for item in submit_plans(here, *plan("gpu_hours = 2")).submitted]
    here.start(first)
    again = submit_plans(here, *plan("gpu_hours = 50"))
    assert [item.reason for item in again.skipped] == ["running", "queued", "queued"]
    charge(others[1], 3.0)
    time.sleep(2 * budget.LOOK_S)
    assert examine(first).state is State.RUNNING
    submit_plans(here, *plan("gpu_hours = 1"))
    wait_until(lambda: examine(first).state is State.EXHAUSTED, "its worker has stopped")


def test_a_longer_run_is_paid_for_by_the_group_of_the_shorter_one(tmp_path):
    root = tmp_path / "runs"
    (chosen,) = plan("gpu_hours = 2", 1)
    group = Group(devices={chosen.tasks[0].run_id: 1.0}, gpu_hours=2.0)
    run = RunDir.create(root, _record(chosen, 0), "")
    group.write(root)
    charge(run, 2.5)
    longer = make_longer(chosen.tasks[0], 100)
    (joined,) = form_groups("local", root, [Plan("h.toml", (longer,), is_whole=False)])
    assert set(joined.devices) == {run.path.name, longer.run_id}
    going, stopped = drop_stopped(root, [joined], [RunDir(root / longer.run_id)])
    assert (going, len(stopped)) == ([], 1)
    write_groups(root, [joined], are_told_of=False)
    found = find_groups(root, joined.devices)
    assert {found[name].number for name in joined.devices} == {1}


def test_the_latest_submission_counts_whatever_the_clocks(tmp_path):
    chosen = plan("gpu_hours = 2")[0]
    old = Group(devices={task.run_id: 1.0 for task in chosen.tasks[:2]}, gpu_hours=9.0)
    replace(old, submitted_at=time.time() + 3600.0).write(tmp_path)
    groups = form_groups("local", tmp_path, [chosen])
    write_groups(tmp_path, groups, are_told_of=False)
    found = find_groups(tmp_path, groups[0].devices)
    assert {group.gpu_hours for group in found.values()} == {2.0}


def test_too_many_failures_are_told_before_a_chosen_run_is_queued(tmp_path):
    group, runs = make_group(tmp_path, max_failures=1, submitted_at=100.0)
    submitted(runs[0], 200.0, started_at=201.0)
    runs[0].write_outcome(OutcomeRecord(outcome=Outcome.FAILED, time=202.0))
    going, stopped = drop_stopped(tmp_path, [], runs[1:])
    assert going == []
    assert {item.reason for item in stopped} == {why_not_begun(runs[1], group)}
    assert drop_stopped(tmp_path, [replace(group)], runs[1:])[0] == runs[1:], "its spec again"


def test_a_run_that_is_cancelled_after_all_is_cancelled(here):
    (run,) = [item.run for item in submit_plans(here, *plan("gpu_hours = 2", 1)).submitted]
    run.write_outcome(OutcomeRecord(outcome=Outcome.EXHAUSTED, message="before"))
    scheduler.cancel([run])
    assert examine(run).state is State.CANCELLED


def test_a_spec_without_a_budget_leaves_nothing_behind_and_lifts_the_one_of_before(here):
    root = here.options.root
    submit_plans(here, *plan("", 1))
    assert not (root / ".groups").exists()
    submit_plans(here, *plan("gpu_hours = 2"))
    submit_plans(here, *plan(""))
    names = [task.run_id for task in plan("")[0].tasks]
    assert {group.gpu_hours for group in find_groups(root, names).values()} == {None}


@pytest.fixture
def job_run(tmp_path) -> RunDir:
    """A run of a group, given to SLURM."""
    _, runs = make_group(tmp_path, gpu_hours=6.0)
    given = Submission(scheduler="slurm", job_id=None, job_name="h2-abc", array_index=3)
    runs[0].write_submission(given)
    return runs[0]


def supervisor(run: RunDir) -> Supervisor:
    return Supervisor(str(run.path), "h2-abc", (*COMMAND, str(run.path)), 1.0)


def test_a_job_whose_budget_is_used_up_ends_at_once(job_run, slurm):
    charge(job_run.beside(NAMES[1]), 3.0)
    assert supervisor(job_run).supervise(JOB) == 75
    assert (job_run.read_heartbeat(), examine(job_run).state) == (None, State.EXHAUSTED)
    assert slurm.calls("scontrol") == []


def test_a_job_stops_at_a_checkpoint_when_the_budget_is_used_up(job_run, slurm, monkeypatch):
    monkeypatch.setattr(budget, "LOOK_S", 0.1)

    def spend() -> None:
        wait_until(lambda: job_run.read_heartbeat() is not None, "it works")
        charge(job_run.beside(NAMES[1]), 3.0)

    thread = threading.Thread(target=spend)
    thread.start()
    assert supervisor(job_run).supervise(JOB) == 75
    thread.join()
    found = examine(job_run)
    assert (found.state, found.step) == (State.EXHAUSTED, 1)
    assert "raise that in its spec" in found.message
    assert [line["how"] for line in job_run.read_attempts() if line["event"] == "stop"] == [
        "budget"
    ]
    assert slurm.calls("scontrol") == [], "it is not requeued"


def test_a_budget_does_not_stop_a_run_that_has_been_cancelled_as_well(job_run, slurm, monkeypatch):
    monkeypatch.setattr(budget, "LOOK_S", 0.1)

    def cancel() -> None:
        wait_until(lambda: job_run.read_heartbeat() is not None, "it works")
        known = job_run.read_submission()
        assert known is not None
        job_run.write_submission(replace(known, cancelled_at=time.time()))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=cancel)
    thread.start()
    assert supervisor(job_run).supervise(JOB) == 75
    thread.join()
    assert examine(job_run).state is State.CANCELLED


def _record(chosen: Plan, index: int):
    from vmcjob.scheduler.records import make_record

    return make_record("h.toml", chosen.tasks[index])


def test_a_dry_run_writes_no_group(tmp_path):
    options = scheduler.SubmissionOptions(tmp_path / "runs")
    scheduler.draft(scheduler.Local(), plan("gpu_hours = 2"), options)
    assert not (tmp_path / "runs").exists()
