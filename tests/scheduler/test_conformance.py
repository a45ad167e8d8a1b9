"""The contract of backends as a program: this machine, SLURM and a fake keep it alike.

For a backend of your own, import this module's tests, and let the fixtures `world` and `batch` make
its world: somebody who decides when its jobs start, as in `worlds.py`.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest

from tests.scheduler.worlds import (
    FakeWorld,
    LocalWorld,
    SlurmWorld,
    World,
    finish,
    plan,
    state,
    submit,
)
from vmcjob import __version__, scheduler
from vmcjob.errors import NotFoundError, SchedulerError, UsageError, VmcJobError
from vmcjob.protocol.batch import Fate
from vmcjob.rundir import LOCAL, RunDir, list_runs
from vmcjob.runs.status import State
from vmcjob.scheduler.records import create_missing, distinct
from vmcjob.site import load_site

BatchWorld = SlurmWorld | FakeWorld


@pytest.fixture(params=["local", "slurm", "fake"])
def world(request, tmp_path, programs) -> Iterator[World]:
    root = tmp_path / "runs"
    world: World
    match request.param:
        case "local":
            world = LocalWorld(root)
        case "slurm":
            world = SlurmWorld(root, programs)
        case _:
            world = FakeWorld(root)
    yield world
    world.close()


@pytest.fixture(params=["slurm", "fake"])
def batch(request, tmp_path, programs, monkeypatch) -> Iterator[BatchWorld]:
    monkeypatch.setattr("vmcjob.supervisor.endings.RETRY_S", 0.01)
    monkeypatch.setattr("vmcjob.supervisor.watch.ASK_AGAIN_S", 0.01)  # no end is known at the start
    root = tmp_path / "runs"
    world = SlurmWorld(root, programs) if request.param == "slurm" else FakeWorld(root)
    yield world
    world.close()


def submit_one(world: World) -> RunDir:
    (item,) = submit(world).submitted
    return item.run


def job_id_of(run: RunDir) -> str:
    submission = run.read_submission()
    assert submission is not None
    assert isinstance(submission.job_id, str)
    return submission.job_id


def test_a_profile_names_it(world, tmp_path):
    """Also one that only this test has registered; another is refused, with what there is."""
    profile = tmp_path / "site.toml"
    profile.write_text(f'scheduler = "{world.backend.name}"\n')
    assert scheduler.choose(load_site(profile, {}).scheduler, is_local=False) is not None
    assert scheduler.choose(world.backend.name, is_local=False).name == world.backend.name
    with pytest.raises(UsageError, match=f'expected "auto", .*"{world.backend.name}".*, got "pbs"'):
        scheduler.choose("pbs", is_local=False)


def test_a_record_says_all_that_is_known_of_its_run(world):
    """A field that is added to records has to be filled in where they are made."""
    ((task,),) = ((one.tasks) for one in plan())
    record = submit_one(world).read_record()
    own = {
        "source": os.path.abspath(plan()[0].source),
        "vmcjob_version": __version__,
        "created": record.created,
    }
    assert asdict(record) == {name: getattr(task, name, None) for name in asdict(record)} | own


def test_a_draft_writes_nothing_and_foretells_what_is_submitted(world):
    drawn = scheduler.draft(world.backend, plan(2), world.options)
    assert not world.options.root.exists()
    receipt = submit(world, 2)
    assert [item.run for item in drawn.receipt.submitted] == [
        item.run for item in receipt.submitted
    ]
    foretold = {shown.job_name for b in drawn.batches if (shown := b.preview()) is not None}
    submissions = [run.read_submission() for run in list_runs(world.options.root)]
    assert foretold == {found.job_name for found in submissions if found and found.job_name}


def test_what_was_submitted_waits_and_is_left_alone(world):
    run = submit_one(world)
    submission = run.read_submission()
    assert submission is not None
    assert (submission.scheduler, submission.is_job) == (
        world.backend.name,
        world.backend.name != LOCAL,
    )
    assert state(run) is State.QUEUED
    (item,) = submit(world).skipped
    assert (item.reason, job_id_of(run)) == ("queued", submission.job_id)


def test_a_run_is_seen_from_its_start_to_its_end(world):
    run = submit_one(world)
    world.start(run)
    assert state(run) is State.RUNNING
    assert [item.reason for item in submit(world).skipped] == ["running"]
    finish(world, run)
    assert state(run) is State.FINISHED
    assert [item.reason for item in submit(world).skipped] == ["finished"]


def test_a_waiting_run_is_cancelled_once_and_can_be_submitted_again(world):
    run = submit_one(world)
    (done,) = scheduler.cancel([run])
    assert (done.was_active, done.error) == (True, None)
    assert state(run) in (State.NEW, State.CANCELLED)
    (again,) = scheduler.cancel([run])
    assert again.was_active is False
    assert submit_one(world) == run
    assert state(run) is State.QUEUED


def test_a_running_run_is_cancelled_at_a_checkpoint_and_resumed(world):
    run = submit_one(world)
    world.start(run)
    (done,) = scheduler.cancel([run])
    assert (done.was_active, done.error) == (True, None)
    if not isinstance(world, LocalWorld):
        world.tell(run)
    world.settle(run)
    assert state(run) is State.CANCELLED
    assert submit_one(world) == run
    world.start(run)
    assert state(run) is State.RUNNING
    finish(world, run)
    assert state(run) is State.FINISHED


def test_a_finished_run_begins_anew_when_that_is_asked_for(world):
    run = submit_one(world)
    world.start(run)
    finish(world, run)
    (item,) = submit(world, is_restart=True).submitted
    assert item.aside is not None
    assert item.aside.has_results
    assert (item.run, item.run.has_results, state(run)) == (run, False, State.QUEUED)


def test_a_refusal_leaves_runs_as_they_were_and_makes_none(world):
    """Directories of runs that nobody works on would stay in every table."""
    (run,) = create_missing(world.options.root, distinct(plan()))
    world.refuse(True)
    with pytest.raises(VmcJobError):
        submit(world, 2)
    assert list_runs(world.options.root) == [run]
    assert (run.read_submission(), state(run)) == (None, State.NEW)
    world.refuse(False)
    assert submit_one(world) == run


def test_a_run_that_cannot_be_recorded_stays_behind_alone(world):
    tasks = plan(2)[0].tasks
    first, second = (RunDir(world.options.root / task.run_id) for task in tasks)
    for run in (submit(world, 2).submitted[0].run, second):
        scheduler.cancel([run])
    first.clear_submission()
    first.submission_path.mkdir()
    receipt = submit(world, 2)
    assert [item.run for item in receipt.submitted] == [second]
    assert [(item.run, item.error is None) for item in receipt.skipped] == [(first, False)]
    assert state(second) is State.QUEUED


def test_several_runs_have_records_of_their_own(world):
    receipt = submit(world, 3)
    assert len(receipt.submitted) == 3
    assert all(item.job_id == job_id_of(item.run) for item in receipt.submitted)
    assert {state(item.run) for item in receipt.submitted} == {State.QUEUED}


def test_what_a_job_says_is_found_or_said_not_to_be(world):
    run = submit_one(world)
    if isinstance(world, LocalWorld):
        with pytest.raises(UsageError, match="without --err"):
            list(scheduler.read_job_logs(run, {}))
        return
    with pytest.raises(NotFoundError, match="has not said anything"):
        list(scheduler.read_job_logs(run, {}))
    world.say(run, "hello")
    assert b"".join(scheduler.read_job_logs(run, {})) == b"hello"
    assert scheduler.find_script(run) is not None


def test_a_job_whose_answer_was_lost_is_adopted_by_the_next_submission(batch):
    batch.lose_answers(True)
    with pytest.raises(SchedulerError):
        submit(batch)
    batch.lose_answers(False)
    (run,) = list_runs(batch.options.root)
    assert state(run) is State.QUEUED
    assert [item.reason for item in submit(batch).skipped] == ["queued"]
    assert job_id_of(run) == batch.context(run).job_id


def test_a_run_whose_time_is_nearly_over_comes_back_as_the_next_attempt(batch):
    run = submit_one(batch)
    job_id, first = job_id_of(run), batch.context(run).attempt
    batch.start(run)
    batch.end_at(time.time())
    batch.join(run)
    assert batch.codes[run] == 75
    assert (state(run), job_id_of(run)) == (State.QUEUED, job_id)
    assert batch.context(run).attempt != first
    batch.end_at(time.time() + 3600)
    batch.start(run)
    finish(batch, run)
    assert (batch.codes[run], state(run)) == (0, State.FINISHED)


def test_a_job_that_somebody_has_ended_does_not_come_back(batch):
    """Ended by the batch system's own means, and not by ours, which leave a word in the record."""
    run = submit_one(batch)
    batch.start(run)
    batch.backend.cancel([run])
    assert batch.context(run).fate() is Fate.CANCELLED
    batch.tell(run)
    batch.settle(run)
    assert state(run) is State.CANCELLED


def test_a_requeue_that_is_refused_is_told(batch):
    run = submit_one(batch)
    batch.start(run)
    batch.refuse(True)
    batch.end_at(time.time())
    batch.settle(run)
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.message.endswith("its job does not come back, vmcjob resume goes on")
    assert state(run) is State.PREEMPTED
    batch.refuse(False)
    assert submit_one(batch) == run


def test_the_ranks_of_a_job_meet_in_one_place(batch):
    run = submit_one(batch)
    first, second = batch.ranks(run)
    assert (first.index, second.index, first.count) == (0, 1, 2)
    assert first.coordinator == second.coordinator
    assert batch.context(run).rank().is_alone


def test_a_backend_that_is_not_ours_is_left_alone(world):
    run = submit_one(world)
    submission = run.read_submission()
    assert submission is not None
    run.write_submission(replace(submission, scheduler="pbs", job_name="x"))
    (done,) = scheduler.cancel([run])
    assert "scheduler 'pbs': expected one of" in str(done.error)
    assert state(run) is State.QUEUED
    run.write_submission(submission)
