"""Runs that begin with what others have learnt, submitted before these have finished."""

import shutil
from dataclasses import replace

import pytest

from tests.runs import wait_until
from tests.scheduler.test_conformance import batch, job_id_of, submit_one, world
from tests.scheduler.worlds import (
    FakeWorld,
    LocalWorld,
    SlurmWorld,
    World,
    plan,
    plan_from,
    seen,
    state,
    submit,
    submit_plans,
)
from vmcjob import scheduler
from vmcjob.cli.submit import plans_again
from vmcjob.errors import UsageError
from vmcjob.plan import Plan
from vmcjob.rundir import END, Activity, Heartbeat, Outcome, OutcomeRecord, RunDir
from vmcjob.runs.status import State
from vmcjob.scheduler.records import create_missing, distinct
from vmcjob.supervisor import Supervisor

__all__ = ["batch", "world"]


def submit_child(world: World, origin: RunDir, learning_rate: float = 0.01) -> RunDir:
    (item,) = submit_plans(world, plan_from(origin, learning_rate)).submitted
    return item.run


def chain_of_three(world: World) -> list[RunDir]:
    first = submit_one(world)
    second = submit_child(world, first)
    return [first, second, submit_child(world, second)]


def test_a_run_waits_for_the_one_that_it_starts_from(world):
    """It has its copy when it starts, and not before: there is nothing to copy yet."""
    parent = submit_one(world)
    child = submit_child(world, parent)
    world.start(parent)
    assert (seen(child).state, seen(child).message) == (
        State.QUEUED,
        f"waits for {parent.path.name}",
    )
    assert not child.start_path.exists()
    (parent.path.parent / "gate").touch()
    if not isinstance(world, LocalWorld):
        world.settle(parent)
        world.start(child)
        world.settle(child)
    wait_until(lambda: state(child) is State.FINISHED, "it has finished too")
    assert (child.start_path / "zarr.json").exists()


def test_runs_that_are_submitted_together_go_in_the_order_of_their_waits(world):
    """Whatever the order that they are named in."""
    parent = RunDir(world.options.root / plan()[0].tasks[0].run_id)
    receipt = submit_plans(world, plan_from(parent), *plan())
    assert {state(item.run) for item in receipt.submitted} == {State.QUEUED}
    assert len(receipt.submitted) == 2
    again = submit_plans(world, plan_from(parent), *plan())
    assert [item.reason for item in again.skipped] == ["queued", "queued"]


def test_what_waits_for_a_cancelled_run_is_blocked_until_both_are_resumed(world):
    first, second, third = chain_of_three(world)
    scheduler.cancel([first])
    wait_until(lambda: state(second) is State.BLOCKED, "it is known")
    names = [run.path.name for run in (first, second, third)]
    assert seen(second).message == (
        f"waits for {names[0]}, which was cancelled; vmcjob resume {names[0]} {names[1]} goes on"
    )
    assert seen(third).message == (
        f"waits for {names[1]}, which is blocked; vmcjob resume {' '.join(names)} goes on"
    )
    (item,) = submit_plans(world, plan_from(first)).skipped
    assert item.reason == (
        f"{names[0]}, which it starts from, is cancelled; "
        f"vmcjob resume {names[0]} {names[1]} goes on with both"
    )
    receipt = submit_plans(world, *plan(), plan_from(first), plan_from(second))
    assert len(receipt.submitted) == 3
    assert {state(run) for run in (first, second, third)} == {State.QUEUED}


def test_a_blocked_run_can_be_cancelled(world):
    first, second, _ = chain_of_three(world)
    scheduler.cancel([first])
    (done,) = scheduler.cancel([second])
    assert (done.was_active, done.error) == (True, None)
    assert state(second) in (State.CANCELLED, State.NEW)


def remove(run: RunDir) -> None:
    """Remove it, although its launcher may still be writing how it ended."""

    def is_removed() -> bool:
        shutil.rmtree(run.path, ignore_errors=True)
        return not run.path.exists()

    wait_until(is_removed, "it is removed")


def test_what_waits_for_a_removed_run_is_told(world):
    first, second, _ = chain_of_three(world)
    scheduler.cancel([first])
    remove(first)
    assert (seen(second).state, seen(second).message) == (
        State.BLOCKED,
        f"waits for {first.path.name}, which was removed or moved away; "
        f"vmcjob cancel {second.path.name}, and submit one that does without it",
    )


def test_what_has_begun_does_not_mind_what_becomes_of_its_start(world):
    """Removed, begun anew: it has its own copy."""
    parent = submit_one(world)
    world.start(parent)
    (parent.path.parent / "gate").touch()
    world.settle(parent)
    (parent.path.parent / "gate").unlink()
    child = submit_child(world, parent)
    submit(world, is_restart=True)
    assert state(child) is State.QUEUED
    world.start(child) if not isinstance(world, LocalWorld) else None
    scheduler.cancel([parent])
    remove(parent)
    assert state(child) in (State.QUEUED, State.RUNNING)


def after(plan: Plan, *runs: RunDir) -> Plan:
    """As `submit --after` makes it."""
    names = tuple(run.path.name for run in runs)
    return replace(plan, tasks=tuple(replace(task, after=names) for task in plan.tasks))


def test_a_run_that_only_comes_after_another_copies_nothing(world):
    first = submit_one(world)
    second = submit_plans(world, after(plan(2)[0], first)).submitted[0].run
    submission = second.read_submission()
    assert submission is not None
    assert submission.waits_for == {first.path.name: END}
    assert seen(second).message == f"waits for {first.path.name}"
    scheduler.cancel([first])
    wait_until(lambda: state(second) is State.BLOCKED, "it is known")
    second.take_start()
    assert not second.start_path.exists()


def resume(world: World, *runs: RunDir) -> scheduler.Receipt:
    """As `vmcjob resume` does it, in the order that the runs are named."""
    (plans,) = plans_again(list(runs)).values()
    return submit_plans(world, *plans)


def test_a_resumed_run_still_waits_for_the_run_that_it_comes_after(world):
    """Resumed in one array with the run that it comes after, it would begin beside that run."""
    first = submit_one(world)
    second = submit_plans(world, after(plan(2)[0], first)).submitted[0].run
    scheduler.cancel([second, first])
    wait_until(lambda: not state(first).is_active, "it has ended")
    (item,) = resume(world, second).skipped
    assert item.reason.endswith(f"resume {first.path.name} {second.path.name} goes on with both"), (
        "alone, it would wait in vain"
    )
    assert len(resume(world, second, first).submitted) == 2
    assert second.open_waits == (first.path.name,)
    if isinstance(world, SlurmWorld):
        script = world.backend.find_script(second)
        assert script is not None
        assert f"--dependency=afterok:{job_id_of(first)}\n" in script.read_text()


def test_a_run_that_was_left_for_later_still_waits_when_it_is_resumed(batch):
    """Its directory is all that remembers the option --after: it has no submission."""
    first = submit_one(batch)
    plans = [after(plan(2)[0], first)]
    (second,) = create_missing(batch.options.root, distinct(plans))
    assert second.read_submission() is None
    resume(batch, second)
    assert second.open_waits == (first.path.name,)
    scheduler.cancel([second])
    wait_until(lambda: not state(second).is_active, "it is cancelled")
    submit_plans(batch, *plan(2))
    assert second.open_waits == (), "submitted without --after, it waits no more"


def test_a_run_that_has_begun_comes_after_no_other(tmp_path):
    """Resuming a run is not refused because the run that it once waited for was removed."""
    run = RunDir(tmp_path)
    run.write_waits(["h-0123456789"])
    assert run.comes_after == ("h-0123456789",)
    run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=1, n_steps=2))
    assert run.comes_after == ()


def test_runs_that_would_wait_in_a_circle_are_refused(world):
    """Also where one of them is queued already; nothing of it is written."""
    first = submit_one(world)
    second = submit_plans(world, after(plan(2)[0], first)).submitted[0].run
    before = second.read_submission()
    scheduler.cancel([first])
    with pytest.raises(UsageError, match=f"{first.path.name}, which waits for .*: none of them"):
        submit_plans(world, after(plan()[0], second))
    assert second.read_submission() == before
    with pytest.raises(UsageError, match="none of them would ever begin"):
        submit_plans(world, after(plan()[0], first))


def test_slurm_is_told_the_job_or_the_element_that_is_waited_for(tmp_path, programs):
    world = SlurmWorld(tmp_path / "runs", programs)
    alone = submit_one(world)
    child = submit_child(world, alone)
    several = [item.run for item in submit(world, 3).submitted]
    assert job_id_of(several[1]).endswith("_1")
    other = submit_child(world, several[1])
    for run, origin in ((child, alone), (other, several[1])):
        script = world.backend.find_script(run)
        assert script is not None
        assert f"#SBATCH --dependency=afterok:{job_id_of(origin)}\n" in script.read_text()
    world.close()


def test_a_dependency_that_slurm_calls_hopeless_is_told_as_such(tmp_path, programs):
    """Also where the run is well: its job, or one beside it in the job, was not."""
    world = SlurmWorld(tmp_path / "runs", programs)
    parent = submit_one(world)
    child = submit_child(world, parent)
    world.give_reason(child, "DependencyNeverSatisfied")
    assert (seen(child).state, seen(child).message) == (
        State.BLOCKED,
        f"waits for the job of {parent.path.name}, which did not end well; "
        f"vmcjob resume {child.path.name} goes on",
    )
    world.close()


def test_a_job_that_starts_before_its_start_has_finished_begins_nothing(tmp_path, capfd):
    """As of SLURM 22.05 when the job before was cancelled: no outcome, so no failure to count."""
    world = FakeWorld(tmp_path / "runs")
    parent = submit_one(world)
    child = submit_child(world, parent)
    submission = child.read_submission()
    assert submission is not None
    supervisor = Supervisor(str(child.path), submission.job_name or "", ("true",), 1.0)
    assert supervisor.supervise(world.context(child)) == 1
    assert child.read_outcome() is None
    words = f"{parent.path.name} has not finished; the run that waits for it is blocked"
    assert words in "".join(capfd.readouterr())
    world.close()


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.FAILED, "which has failed; vmcjob resume"),
        (Outcome.DIVERGED, "which has diverged; vmcjob cancel"),
        (Outcome.PREEMPTED, "which has stopped half-way; vmcjob resume"),
    ],
)
def test_each_bad_end_of_a_start_has_its_word(tmp_path, outcome, words):
    world = LocalWorld(tmp_path / "runs")
    parent = submit_one(world)
    child = submit_child(world, parent)
    scheduler.cancel([parent])
    parent.write_outcome(OutcomeRecord(outcome=outcome))
    if outcome is Outcome.PREEMPTED:
        parent.clear_cancellation()
    assert seen(child).state is State.BLOCKED
    assert words in seen(child).message
    world.close()
