"""Runs on a file system that shows files and absences for a minute as they were."""

import sys
from dataclasses import replace

import pytest

from tests.caching import MEMORY_S, CachingClient
from tests.runs import make_run
from tests.scheduler.worlds import FakeWorld, plan, submit
from vmcjob.rundir import Activity, Heartbeat, Outcome, OutcomeRecord, RunDir, Submission
from vmcjob.runs.status import HIDDEN, STALE_S, JobState, Stage, State, examine
from vmcjob.scheduler.records import create_missing, distinct
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor import Supervisor

GIVEN = Submission(
    scheduler="slurm", job_id="22", job_name="h2-abc", host="node1", submitted_at=0.0
)


@pytest.fixture
def client(tmp_path, monkeypatch) -> CachingClient:
    return CachingClient(tmp_path, monkeypatch)


def beat(run: RunDir, now: float) -> None:
    """A sign of life from another host."""
    run.write_heartbeat(
        Heartbeat(phase=Activity.TRAIN, step=1, n_steps=9, host="node1", pid=7, time=now)
    )


def begin(client: CachingClient, run: RunDir) -> None:
    """A job that was submitted and begins on another host, after this one has looked."""
    assert examine(run).state is State.NEW
    with client.elsewhere():
        started = {"started_at": client.now, "worker_pid": 7, "worker_start": 1}
        run.write_submission(replace(GIVEN, submitted_at=client.now - 1, **started))
        beat(run, client.now)


def test_a_worker_that_lives_is_never_called_dead(client, tmp_path):
    """Signs of life are a minute old when they are seen; those of a dead worker end, too."""
    run, queue = make_run(tmp_path), {}
    begin(client, run)
    client.now += MEMORY_S
    states = set()
    for _ in range(60):
        client.now += 7.0
        with client.elsewhere():
            beat(run, client.now)
        queue = {run.path: JobState(Stage.ACTIVE, "22", started_at=client.now - 900)}
        states |= {examine(run).state, examine(run, queue).state}
    assert states == {State.RUNNING}
    client.now += MEMORY_S + STALE_S
    assert examine(run).state is State.DEAD


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_an_end_that_this_host_remembers_as_absent_is_read(client, tmp_path, is_forgotten):
    """A run that has finished would be called dead, and submitted again."""
    run = make_run(tmp_path)
    begin(client, run)
    client.now += MEMORY_S
    queue = {run.path: JobState(Stage.ACTIVE, "22", started_at=client.now - 60)}
    assert examine(run, queue).state is State.RUNNING  # here its outcome was looked for in vain
    client.now += 1
    with client.elsewhere():
        run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, time=client.now))
    assert run.read_outcome() is None
    queue = {run.path: JobState(Stage.ENDED, "22", is_forgotten=is_forgotten)}
    assert examine(run, queue).state is State.PREEMPTED


def test_an_end_that_is_listed_and_cannot_be_opened_yet_is_not_a_death(tmp_path, monkeypatch):
    """Some clients list a new file before they open it."""
    client = CachingClient(tmp_path, monkeypatch, heeds_listing=False)
    run = make_run(tmp_path)
    begin(client, run)
    client.now += MEMORY_S
    assert examine(run).state is State.RUNNING
    with client.elsewhere():
        run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, time=client.now))
    queue = {run.path: JobState(Stage.ENDED, "22")}
    row = examine(run, queue)
    assert (row.state, row.message) == (State.NOT_KNOWN, HIDDEN)
    client.now += MEMORY_S
    assert examine(run, queue).state is State.PREEMPTED
    with client.elsewhere():
        run.clear_outcome()
    client.now += MEMORY_S + STALE_S
    assert examine(run, queue).state is State.DEAD


def test_a_run_that_another_host_submitted_a_moment_ago_gets_no_second_job(tmp_path, monkeypatch):
    """This host remembers that the run was not submitted."""
    root = tmp_path / "runs"
    root.mkdir()
    world = FakeWorld(root)
    try:
        client = CachingClient(root, monkeypatch)
        tasks = distinct(plan())
        (run,) = (RunDir(root / run_id) for run_id in tasks)
        create_missing(root, tasks)
        assert examine(run).state is State.NEW
        with client.elsewhere():
            assert len(submit(world).submitted) == 1
        assert run.read_submission() is None
        assert submit(world).submitted == ()
        assert len(world.system.jobs) == 1
    finally:
        world.close()


def test_a_job_finds_the_submission_that_it_is_of(client, tmp_path, programs):
    """Its node had the job before, and remembers that one's name; the new one would do nothing."""
    programs.make("squeue", "25 N/A UNLIMITED\n")
    programs.make("scontrol", "JobId=25 JobState=RUNNING Restarts=0\n")
    run = make_run(tmp_path)
    run.write_submission(replace(GIVEN, job_name="h2-before"))
    assert run.read_submission() is not None
    with client.elsewhere():
        run.write_submission(GIVEN)
    program = f"open({str(tmp_path / 'began')!r}, 'w')"
    command = (sys.executable, "-c", program)
    Supervisor(str(run.path), "h2-abc", command, 1.0).supervise(SlurmJob("22", "25", 0))
    assert (tmp_path / "began").exists()
