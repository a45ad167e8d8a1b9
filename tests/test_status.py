"""The state of a run, judged from its directory and from the processes that are alive."""

import os
import time
from dataclasses import replace

import pytest

from tests.runs import make_run, sleeping_process, wait_until
from vmcjob.rundir import (
    RESULTS,
    Activity,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    Process,
    RunDir,
    Submission,
)
from vmcjob.runs.notification import describe_run
from vmcjob.runs.status import (
    SILENT,
    STALE_S,
    WITHOUT_A_WORD,
    JobState,
    Stage,
    State,
    examine,
    rows,
)
from vmcjob.store import Layout, RunStore

HERE = os.uname().nodename
NOBODY = 2**31 - 1  # beyond the largest pid that Linux gives


@pytest.fixture
def run(tmp_path) -> RunDir:
    return make_run(tmp_path)


@pytest.fixture
def alive():
    """A process that lives as long as the test."""
    with sleeping_process() as process:
        yield Process.of_pid(process.pid)


DEAD = Process(HERE, NOBODY, 1)


def beat(run: RunDir, worker: Process, **changes) -> None:
    heartbeat = Heartbeat(
        phase=Activity.TRAIN,
        step=3,
        n_steps=10,
        host=worker.host,
        pid=worker.pid,
        process_start=worker.start,
    )
    run.write_heartbeat(replace(heartbeat, **changes))


def submit(run: RunDir, launcher: Process, worker: Process | None = None, **changes) -> None:
    submission = Submission(
        scheduler="local",
        job_id=f"local-{launcher.pid}",
        host=launcher.host,
        pid=launcher.pid,
        process_start=launcher.start,
    )
    if worker is not None:
        started = {"worker_pid": worker.pid, "worker_start": worker.start}
        submission = replace(submission, **started, started_at=time.time())
    run.write_submission(replace(submission, **changes))


def end(run: RunDir, outcome: Outcome, message: str = "") -> None:
    run.write_outcome(OutcomeRecord(outcome=outcome, message=message))


def test_a_run_that_nobody_touched_is_new(run):
    assert examine(run).state is State.NEW


def test_a_run_waits_as_long_as_its_launcher_lives(run, alive):
    submit(run, alive)
    row = examine(run)
    assert (row.state, row.message) == (State.QUEUED, "waits for its turn on this machine")
    submit(run, DEAD)
    assert examine(run).state is State.DEAD


def test_a_run_whose_local_queue_was_killed_says_so(run):
    """kill -9 leaves nobody to write a word about those whose turn had not come."""
    submit(run, DEAD)
    assert examine(run).message == (
        "its turn never came: the queue of this machine that it waited in was killed; "
        "vmcjob resume goes on"
    )


def test_a_run_whose_launcher_gave_up_stays_blocked_when_the_other_goes_on(run, alive, tmp_path):
    """Nobody waits with it any more, and nobody was killed: it has to be told to go on."""
    other = make_run(tmp_path, "h2-0000000002")
    submit(run, DEAD, waits_for={other.path.name: RESULTS})
    submit(other, alive)
    assert examine(other).state is State.QUEUED
    row = examine(run)
    assert row.state is State.BLOCKED
    assert row.message == (
        "waits for h2-0000000002, and nobody waits with it any more: that had stopped meanwhile, "
        f"or the queue of this machine was killed; vmcjob resume {run.path.name} goes on"
    )
    told = describe_run(run)
    assert (told["state"], told["message"]) == (State.BLOCKED, row.message)


def test_a_run_without_an_evaluation_shows_no_energy(run):
    """A mean over moving parameters is not the energy of anything."""
    layout = Layout(n_train=9, n_evaluate=0, n_walkers=2, n_electrons=2, n_snapshots=0)
    store = run.store_path
    RunStore.create(store, run_id="h2", spec_text="", provenance={}, layout=layout)
    run.write_heartbeat(Heartbeat(phase=Activity.DONE, step=9, n_steps=9, energy=-1.1, error=0.01))
    run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
    row = examine(run)
    assert (row.state, row.energy, row.error) == (State.FINISHED, None, None)
    assert row.message == "trained only, so without an energy: evaluate.steps is 0"


def test_a_started_worker_is_running_before_its_first_heartbeat(run, alive):
    """Importing takes seconds; the launcher may be gone by then."""
    submit(run, DEAD, alive)
    assert examine(run).state is State.RUNNING


def test_a_worker_that_died_before_its_first_heartbeat_is_not_queued(run, alive):
    """Its launcher may live on for hours with other runs."""
    submit(run, alive, DEAD)
    assert examine(run).state is State.DEAD


def test_a_worker_started_by_hand_is_running(run, alive):
    beat(run, alive)
    assert examine(run).state is State.RUNNING


def test_a_killed_worker_is_dead_though_its_heartbeat_is_fresh(run):
    """The age of a heartbeat says nothing on the worker's own host: look for the process."""
    with sleeping_process() as process:
        beat(run, Process.of_pid(process.pid))
        assert examine(run).state is State.RUNNING
        process.kill()
        wait_until(lambda: examine(run).state is State.DEAD, "a zombie counts as dead")


def test_a_worker_that_is_alive_but_silent_is_running(run, alive):
    """Compiling can take longer than any limit; the age is shown for people to judge."""
    beat(run, alive, time=time.time() - 3600)
    row = examine(run)
    assert row.state is State.RUNNING
    assert row.heartbeat_age_s == pytest.approx(3600, abs=60)


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_counts_even_while_its_worker_lingers(run, alive, outcome):
    """Closing JAX down takes a moment after the last word; `--follow` must not wait for it."""
    submit(run, alive, alive)
    beat(run, alive)
    run.store_path.mkdir()
    (run.store_path / "zarr.json").write_text("{}")
    end(run, outcome, "why")
    row = examine(run)
    assert row.state == outcome
    assert row.message == "why"


def test_a_resubmitted_run_is_queued_whatever_its_last_attempt_came_to(run, alive):
    """The old outcome stays until the new attempt begins, so that `cancel` brings it back."""
    beat(run, DEAD)
    end(run, Outcome.FAILED, "disk full")
    submit(run, alive)
    assert examine(run).state is State.QUEUED
    assert examine(run).message == "waits for its turn on this machine"
    submit(run, DEAD)
    assert examine(run).state is State.FAILED


@pytest.mark.parametrize(
    ("age_s", "state"),
    [
        (0.0, State.RUNNING),
        (STALE_S - 10, State.RUNNING),
        (STALE_S + 10, State.DEAD),
        (-3600.0, State.RUNNING),  # its clock is ahead of ours
    ],
)
def test_a_worker_on_another_host_is_judged_by_its_heartbeat(run, age_s, state):
    beat(run, Process("elsewhere", os.getpid(), None), time=time.time() - age_s)
    row = examine(run)
    assert row.state is state
    assert row.heartbeat_age_s is not None
    assert row.heartbeat_age_s >= 0


def test_a_worker_just_started_on_another_host_is_running(run):
    launcher, worker = Process("elsewhere", 5, 1), Process("elsewhere", 6, 1)
    beat(run, Process("elsewhere", 4, 1), time=time.time() - 86400)
    submit(run, launcher, worker)
    assert examine(run).state is State.RUNNING
    submit(run, launcher, worker, started_at=time.time() - STALE_S - 10)
    assert examine(run).state is State.DEAD


def test_a_run_queued_on_another_host_is_queued(run):
    """Its launcher cannot be seen from here; calling it dead would invite a second worker."""
    submit(run, Process("elsewhere", NOBODY, 1))
    assert examine(run).state is State.QUEUED


def test_a_cancelled_run_that_failed_or_finished_before_it_stopped_says_so(run, alive):
    """Wanted or not, what it came to counts; only a stop at a checkpoint is a cancellation."""
    beat(run, DEAD)
    run.write_cancellation(DEAD)
    assert examine(run).state is State.CANCELLED  # it died before it could listen
    for outcome in Outcome:
        end(run, outcome)
        is_cancelled = outcome is Outcome.PREEMPTED
        assert examine(run).state == (State.CANCELLED if is_cancelled else outcome)
    submit(run, alive)
    assert examine(run).state is State.QUEUED


def test_speed_and_time_left_are_shown_only_while_running(run, alive):
    beat(run, alive, steps_per_s=5.0, eta_s=60.0, energy=-1.1, error=0.01, acceptance=0.5)
    assert (examine(run).steps_per_s, examine(run).eta_s) == (5.0, 60.0)
    end(run, Outcome.PREEMPTED)
    row = examine(run)
    assert (row.steps_per_s, row.eta_s) == (None, None)
    assert (row.energy, row.error, row.acceptance) == (-1.1, 0.01, 0.5)
    assert (row.phase, row.step, row.n_steps) == (Activity.TRAIN, 3, 10)


def test_a_damaged_run_is_reported_beside_the_others(tmp_path):
    good, bad = make_run(tmp_path, "h2-0000000000"), make_run(tmp_path, "h2-1111111111")
    bad.record_path.write_text("{")
    found, errors = rows([good, bad])
    assert [row.run for row in found] == [good]
    assert ["h2-1111111111/run.json: damaged" in str(error) for error in errors] == [True]


def test_a_worker_that_ends_while_we_look_is_never_called_dead(run, monkeypatch):
    """The outcome is read after the process was looked for; the other order would be a race.

    The worker here ends exactly between the two.
    """
    beat(run, DEAD)
    look = Process.is_alive

    def ends_while_looked_at(process: Process) -> bool | None:
        end(run, Outcome.FINISHED)
        return look(process)

    monkeypatch.setattr(Process, "is_alive", ends_while_looked_at)
    assert examine(run).state is State.FINISHED


def give_to_slurm(run: RunDir, **changes) -> None:
    submission = Submission(scheduler="slurm", job_id="22_3", job_name="h2-x", array_index=3)
    run.write_submission(replace(submission, **changes))


WAITING = JobState(Stage.WAITING, "22_3", "others come first")
ENDED = JobState(Stage.ENDED, "22_3", "out of memory; ask for more (--mem)")
CANCELLED = JobState(Stage.ENDED, "22_3", is_cancelled=True)
FAILED = JobState(Stage.ENDED, "22_3")
FORGOTTEN = JobState(Stage.ENDED)


def active(age_s: float) -> JobState:
    """A job that got its machine so long ago."""
    return JobState(Stage.ACTIVE, "22_3", started_at=time.time() - age_s)


def state(run: RunDir, job: JobState | None) -> State:
    return examine(run, {run.path: job} if job else {}).state


def test_a_job_that_waits_is_queued_and_says_why(run):
    """Also when an earlier attempt of it was preempted."""
    give_to_slurm(run)
    end(run, Outcome.PREEMPTED)
    row = examine(run, {run.path: WAITING})
    assert (row.state, row.message) == (State.QUEUED, "others come first")


def test_a_job_that_starts_runs_before_its_supervisor_has_spoken(run):
    """What the attempt before a requeue has left does not count."""
    give_to_slurm(run, started_at=time.time() - 100)
    beat(run, DEAD, time=time.time() - 90)
    end(run, Outcome.PREEMPTED)
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, time=time.time() - 80))
    assert state(run, active(age_s=2)) is State.RUNNING


def test_a_job_whose_worker_died_is_dead_though_slurm_calls_it_running(run, alive):
    give_to_slurm(run, started_at=time.time() - 5)
    beat(run, alive)
    assert state(run, active(age_s=10)) is State.RUNNING
    beat(run, DEAD)
    assert state(run, active(age_s=10)) is State.DEAD


def test_a_suspended_job_is_not_dead_though_it_gives_no_sign_of_life(run):
    long_ago = time.time() - 10 * STALE_S
    give_to_slurm(run, started_at=long_ago)
    beat(run, Process("elsewhere", 1, 1), time=long_ago)
    assert examine(run, {run.path: active(age_s=11 * STALE_S)}).message == SILENT
    suspended = replace(active(age_s=11 * STALE_S), is_suspended=True, words="suspended")
    row = examine(run, {run.path: suspended})
    assert (row.state, row.message) == (State.RUNNING, "suspended")


def test_a_job_that_slurm_has_ended_is_not_running_whatever_its_last_heartbeat(run):
    """The worker's host is another one, and its heartbeat is fresh."""
    give_to_slurm(run, started_at=time.time())
    beat(run, Process("elsewhere", 1, 1))
    assert state(run, None) is State.RUNNING
    row = examine(run, {run.path: ENDED})
    assert (row.state, row.message) == (State.DEAD, "out of memory; ask for more (--mem)")


@pytest.mark.parametrize("cancelled_at", [None, 1.0])
def test_a_worker_that_outlives_its_job_is_not_called_over(run, cancelled_at):
    """slurmctld gives a node up that works on; a second worker must not join."""
    give_to_slurm(run, started_at=time.time() - 90, cancelled_at=cancelled_at)
    beat(run, Process("elsewhere", 1, 1))
    ended = replace(FAILED, ended_at=time.time() - 30, is_cancelled=cancelled_at is not None)
    expected = State.NOT_KNOWN if cancelled_at is None else State.STOPPING
    assert state(run, ended) is expected
    assert "was heard of 0 s ago" in examine(run, {run.path: ended}).message
    just_now = replace(ended, ended_at=time.time())
    assert state(run, just_now) is (State.CANCELLED if cancelled_at else State.DEAD)


def test_a_run_whose_new_worker_was_refused_says_by_whom(run):
    """Nothing else is known of a job that came back while its lost node worked on."""
    give_to_slurm(run, started_at=time.time() - 5)
    run.append_attempt("refused", how="already being run by pid 1 on host n1")
    assert examine(run, {run.path: FAILED}).message.startswith("already being run by pid 1")


@pytest.mark.parametrize("job", [None, FORGOTTEN, CANCELLED])
def test_a_cancelled_run_is_cancelled_with_and_without_slurms_memory(run, job):
    give_to_slurm(run, started_at=time.time(), cancelled_at=time.time())
    end(run, Outcome.PREEMPTED)
    assert state(run, job) is State.CANCELLED
    end(run, Outcome.FINISHED)
    assert state(run, job) is State.FINISHED


def test_a_job_that_ended_without_a_word_has_not_come_to_what_was_before_it(run):
    """Its setup failed, say: the old sentence would send the user after an old fault."""
    end(run, Outcome.FAILED, "disk full")
    run.append_attempt("lost", how="SIGKILL")
    give_to_slurm(run, submitted_at=time.time() + 1)
    row = examine(run, {run.path: FAILED})
    assert (row.state, row.message) == (State.DEAD, WITHOUT_A_WORD)
    assert state(run, None) is State.QUEUED
    give_to_slurm(run, submitted_at=time.time() + 1, job_id=None)
    assert state(run, FORGOTTEN) is State.FAILED  # there never was a job


def test_a_submission_that_never_reached_slurm_is_new(run):
    give_to_slurm(run, job_id=None)
    assert state(run, FORGOTTEN) is State.NEW
    assert state(run, None) is State.QUEUED  # nobody was asked


def test_the_job_id_of_a_submission_cut_short_comes_from_the_queue(run):
    give_to_slurm(run, job_id=None)
    assert examine(run, {run.path: WAITING}).job_id == "22_3"


def test_a_killed_worker_is_told_of_by_whoever_knows_more(run):
    """SLURM calls both a failure; its memory of the job must not hide what the run knows."""
    give_to_slurm(run, started_at=time.time())
    beat(run, DEAD)
    words = []
    for details in ({}, {"how": "SIGKILL"}, {"how": "SIGKILL", "rank": 1}, {"how": "exit code 3"}):
        if details:
            run.append_attempt("lost", worker_pid=NOBODY, **details)
        (told,) = {examine(run, {run.path: job}).message for job in (FAILED, FORGOTTEN)}
        words.append(told)
    assert words == [
        WITHOUT_A_WORD,
        "the worker was killed by SIGKILL; vmcjob resume goes on",
        "the worker of rank 1 was killed by SIGKILL; vmcjob resume goes on",
        "the worker ended: exit code 3; vmcjob resume goes on",
    ]
    assert examine(run, {run.path: ENDED}).message == ENDED.words


def test_a_job_that_has_stopped_half_way_is_stopping_until_it_is_known_what_follows(run):
    """A cancelled one was never preempted, and one that is requeued is not to be submitted anew."""
    for cancelled_at in (None, time.time()):
        give_to_slurm(run, started_at=time.time() - 5, cancelled_at=cancelled_at)
        end(run, Outcome.PREEMPTED)
        assert state(run, active(age_s=10)) is State.STOPPING
        assert state(run, CANCELLED) is State.CANCELLED
        end(run, Outcome.FINISHED)
        assert state(run, active(age_s=10)) is State.FINISHED


def test_a_cancelled_job_whose_worker_was_killed_is_on_its_way_to_cancelled(run):
    give_to_slurm(run, started_at=time.time() - 5, cancelled_at=time.time())
    beat(run, DEAD)
    assert state(run, active(age_s=10)) is State.STOPPING
    assert state(run, FORGOTTEN) is State.CANCELLED


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_job_whose_worker_was_asked_to_stop_says_so(run, alive, is_answered):
    """By whom does not matter; that the worker of another attempt was asked does not count.

    Nor does it when that was on a host whose clock is ahead.
    """
    job = active(age_s=10) if is_answered else None
    now = time.time()
    run.append_attempt("stop", how="deadline", worker_pid=NOBODY, time=now + 200)
    run.append_attempt("stop", how="deadline", worker_pid=alive.pid, host="elsewhere")
    ours = {"started_at": now, "host": HERE, "worker_pid": alive.pid}
    give_to_slurm(run, **ours)
    beat(run, alive)
    assert state(run, job) is State.RUNNING
    run.append_attempt("stop", how="deadline", worker_pid=alive.pid, time=now - 200)
    assert state(run, job) is State.STOPPING
    give_to_slurm(run, **ours | {"worker_pid": NOBODY - 1})
    assert state(run, job) is State.RUNNING
    give_to_slurm(run, **ours, cancelled_at=time.time())
    assert state(run, job) is State.STOPPING


def test_a_job_whose_last_processes_are_being_ended_is_stopping(run):
    """It may come back, and then SLURM tells the start of its next attempt, not of this one."""
    ending = JobState(Stage.ACTIVE, "22_3", is_ending=True)
    give_to_slurm(run, started_at=time.time() - 5)
    assert state(run, ending) is State.STOPPING
    for outcome, expected in ((Outcome.PREEMPTED, "STOPPING"), (Outcome.FINISHED, "FINISHED")):
        run.write_outcome(OutcomeRecord(outcome=outcome))
        assert state(run, ending) == expected


def test_a_worker_that_its_supervisor_has_lost_is_dead_though_its_job_goes_on(run):
    """Other runs may share the job; the heartbeat of another host stays fresh for a while."""
    give_to_slurm(run, started_at=time.time() - 5, host="elsewhere", worker_pid=7, place=1)
    beat(run, Process("elsewhere", 7, 1))
    run.append_attempt("lost", how="SIGKILL", worker_pid=6, host="elsewhere")
    assert state(run, active(age_s=10)) is State.RUNNING
    run.append_attempt("lost", how="SIGKILL", worker_pid=7, host="elsewhere")
    row = examine(run, {run.path: active(age_s=10)})
    assert row.state is State.DEAD
    assert row.message.startswith("the worker was killed by SIGKILL")


def test_a_worker_that_is_gone_is_dead_when_its_supervisor_says_so_or_is_gone_too(run, alive):
    """Between a worker's end and its supervisor's word on it there is a moment, and no death."""
    ours = {"started_at": time.time() - 5, "host": HERE, "worker_pid": NOBODY}
    beat(run, DEAD)
    for supervisor, expected in ((alive, State.RUNNING), (DEAD, State.DEAD)):
        give_to_slurm(run, **ours, pid=supervisor.pid, process_start=supervisor.start)
        assert state(run, active(age_s=10)) is expected
    give_to_slurm(run, **ours, pid=alive.pid, process_start=alive.start)
    run.append_attempt("lost", how="SIGKILL", worker_pid=NOBODY)
    assert state(run, active(age_s=10)) is State.DEAD


def test_a_job_that_goes_on_in_silence_runs_and_says_what_that_can_mean(run):
    """A clock that is ahead, a worker that hangs, a setup of minutes: nobody knows from outside.

    Who follows a run must not be told that it has ended.
    """
    give_to_slurm(run)
    assert examine(run, {run.path: active(age_s=10)}).message == ""
    for worker in (None, Process("elsewhere", 1, 1)):
        if worker is not None:
            give_to_slurm(run, started_at=time.time() - 500)
            beat(run, worker, time=time.time() - 200)
        row = examine(run, {run.path: active(age_s=510)})
        assert (row.state, row.message) == (State.RUNNING, SILENT)
    beat(run, Process("elsewhere", 1, 1))
    assert examine(run, {run.path: active(age_s=510)}).message == ""
