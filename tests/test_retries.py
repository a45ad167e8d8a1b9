"""What goes on by itself, and how often; SLURM's programs are stand-ins."""

import sys
from dataclasses import replace

import pytest

from tests.runs import make_run
from tests.test_supervisor import WORKER, slurm
from vmcjob.protocol import OUT_OF_MEMORY
from vmcjob.resources import DEFAULT_RETRIES, Retries
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir, Submission
from vmcjob.status import State, examine
from vmcjob.supervisor import SlurmJob, Supervisor
from vmcjob.supervisor.endings import Attempt, conclude
from vmcjob.supervisor.retries import Cause, cause_of_silence, is_out_of_memory, try_again

__all__ = ["slurm"]
JOB = SlurmJob("22_3", "25", 0)
BACK = SlurmJob("22_3", "25", 1)
TERM, URG, KILL = "SIGTERM", "SIGURG", -9
STOPPED = 75


@pytest.fixture
def run(tmp_path) -> RunDir:
    run = make_run(tmp_path)
    run.write_submission(
        Submission(scheduler="slurm", job_id="22_3", job_name="h2-abc", number=2, started_at=1.0)
    )
    return run


def told(run: RunDir) -> list[tuple[object, object]]:
    """What the history says of retries."""
    lines = run.read_attempts()
    return [(line["event"], line["how"]) for line in lines if "cause" in line]


def end(run: RunDir, code: int, reason: str | None, retries: Retries = DEFAULT_RETRIES) -> int:
    """How an attempt ends whose worker ended like this."""
    if code == STOPPED:
        run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped"))
    return conclude(Attempt(run, JOB, 1, code, reason, has_moved=True, retries=retries))


def test_a_preempted_run_goes_on_as_often_as_it_takes_and_says_so(run, slurm):
    for _ in range(3):
        assert end(run, STOPPED, TERM) == STOPPED
    assert slurm.calls("scontrol").count("requeue 22_3") == 3
    assert told(run) == [("retry", f"{n}: its job was taken away") for n in (1, 2, 3)]


def test_a_run_that_is_preempted_too_often_is_left_alone(run, slurm):
    limits = Retries(preemption=1)
    assert end(run, STOPPED, TERM, limits) == STOPPED
    assert end(run, STOPPED, TERM, limits) == STOPPED
    assert slurm.calls("scontrol").count("requeue 22_3") == 1
    assert told(run) == [
        ("retry", "1 of 1: its job was taken away"),
        ("gave up", "its job was taken away"),
    ]
    assert examine(run).message == (
        "its job was taken away 2 times, and retries.preemption is 1; vmcjob resume goes on"
    )
    # SLURM brings it back all the same: nothing is done.
    program = "raise SystemExit('started')"
    command = (sys.executable, "-c", program)
    again = Supervisor(str(run.path), "h2-abc", command, 1.0, retries=limits)
    assert again.supervise(BACK) == STOPPED
    assert not run.log_path.exists()
    assert examine(run).state is State.PREEMPTED


def test_a_wall_time_that_is_over_is_no_retry(run, slurm):
    for _ in range(3):
        end(run, STOPPED, URG, Retries(preemption=0))
    assert slurm.calls("scontrol").count("requeue 22_3") == 3
    assert told(run) == []


def test_submitting_again_gives_all_retries_back(run, slurm):
    limits = Retries(preemption=1)
    end(run, STOPPED, TERM, limits)
    end(run, STOPPED, TERM, limits)
    given = run.read_submission()
    assert given is not None
    run.write_submission(replace(given, number=3))
    end(run, STOPPED, TERM, limits)
    assert told(run)[-1] == ("retry", "1 of 1: its job was taken away")


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([], None),
        (["start"], Cause.NODE_FAILURE),
        (["start", "end"], None),
        (["start", "lost"], None),
        (["start", "end", "start"], Cause.NODE_FAILURE),
        (["start", "stop"], Cause.PREEMPTION),  # it had too little time left
        (["start", "stop", "retry"], None),
    ],
)
def test_an_attempt_that_could_not_say_how_it_ended(run, events, cause):
    given = run.read_submission()
    history = [{"event": event} for event in events]
    assert cause_of_silence(history, given) is cause
    assert cause_of_silence(history, replace(given, started_at=None)) is None, "of one before"


def test_a_node_may_fail_so_often_and_no_more(run, slurm):
    program = WORKER.replace("while not n_signals", "while False")
    command = (sys.executable, "-c", program, str(run.path), "1")
    limits = Retries(node_failure=1)
    run.append_attempt("start")
    again = Supervisor(str(run.path), "h2-abc", command, 1.0, retries=limits)
    assert again.supervise(BACK) == STOPPED
    assert "signals" in run.log_path.read_text(), "its worker has worked"
    run.append_attempt("start")
    text = run.log_path.read_text()
    assert again.supervise(BACK) == 1
    assert run.log_path.read_text() == text
    assert told(run) == [
        ("retry", "1 of 1: its node failed, or its job was killed"),
        ("gave up", "its node failed, or its job was killed"),
    ]
    assert (examine(run).state, examine(run).message) == (
        State.FAILED,
        "its node failed, or its job was killed 2 times, and retries.node_failure is 1; vmcjob "
        "resume goes on",
    )


LACKING = OutcomeRecord(outcome=Outcome.FAILED, message=OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("code", "reason", "outcome", "is_it"),
    [
        (KILL, None, None, True),
        (KILL, TERM, None, False),  # at the end of its grace time
        (-11, None, None, False),
        (1, None, LACKING, True),
        (1, None, OutcomeRecord(outcome=Outcome.FAILED, message="a bug"), False),
        (3, None, OutcomeRecord(outcome=Outcome.DIVERGED, message=OUT_OF_MEMORY), False),
    ],
)
def test_what_is_taken_for_a_lack_of_memory(code, reason, outcome, is_it):
    assert is_out_of_memory(code, reason, outcome) is is_it


def test_a_run_without_memory_begins_again_only_where_that_is_asked_for(run, slurm):
    assert end(run, KILL, None) == 9
    assert (slurm.calls("scontrol"), told(run)) == ([], [])
    limits = Retries(out_of_memory=2)
    for _ in range(2):
        run.clear_outcome()
        assert end(run, KILL, None, limits) == STOPPED
        assert examine(run).state is State.PREEMPTED
    run.clear_outcome()
    assert end(run, KILL, None, limits) == 9
    assert slurm.calls("scontrol").count("requeue 22_3") == 2
    assert examine(run).message == (
        "it had too little memory 3 times, and retries.out_of_memory is 2; vmcjob resume goes on"
    )


def test_a_spec_has_the_last_word_on_retries(run):
    site = Retries(preemption=5, node_failure=0)
    assert Retries(node_failure=2).over(site) == Retries(preemption=5, node_failure=2)
    assert DEFAULT_RETRIES.over(site) == site


def test_causes_are_counted_apart(run):
    limits, given = Retries(preemption=1, node_failure=1), run.read_submission()
    assert given is not None
    assert try_again(run, given, Cause.PREEMPTION, limits) is None
    assert try_again(run, given, Cause.NODE_FAILURE, limits) is None
    assert try_again(run, given, Cause.PREEMPTION, limits) is not None
