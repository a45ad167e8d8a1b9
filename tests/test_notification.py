"""What a user's command is told of ends; the supervisors and launchers are real, SLURM is not."""

import json
import os
import sys
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.runs import Programs, make_run, wait_until
from vmcjob import scheduler
from vmcjob.rundir import Group, Outcome, OutcomeRecord, Process, RunDir, Submission
from vmcjob.runs import notification
from vmcjob.runs.notification import call, final_state, notify_run, why_not_found
from vmcjob.runs.state import State
from vmcjob.scheduler.local import Order
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor import Supervisor
from vmcjob.supervisor.endings import Attempt, conclude

JOB = SlurmJob("22_3", "25", 0)
SAY = """
import sys
from pathlib import Path
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
outcome = Outcome[sys.argv[2]]
RunDir(Path(sys.argv[1])).write_outcome(OutcomeRecord(outcome=outcome, message="so it ended"))
sys.exit({"FINISHED": 0, "PREEMPTED": 75, "FAILED": 1, "DIVERGED": 3}[outcome])
"""
KILLED = "import os; os.kill(os.getpid(), 9)"
DOES_NOT_START = "/absent"


@pytest.fixture
def run(tmp_path) -> RunDir:
    run = make_run(tmp_path / "runs")
    run.write_submission(
        Submission(scheduler="slurm", job_id="22_3", job_name="h2-abc", array_index=3)
    )
    return run


@pytest.fixture
def slurm(programs) -> Programs:
    programs.make("squeue", "25 N/A UNLIMITED\n")
    programs.make("scontrol", "JobId=25 JobState=RUNNING Restarts=0\n")
    return programs


class Listener:
    """A command that keeps the documents that it is given, one per line."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "told"
        program = f"import sys; open({str(self.path)!r}, 'a').write(sys.stdin.read())"
        script = folder / "listener.py"
        script.write_text(program)
        self.command = f"{sys.executable} {script}"

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self else []

    def __bool__(self) -> bool:
        return self.path.exists()


@pytest.fixture
def listener(tmp_path) -> Listener:
    return Listener(tmp_path)


def supervise(run: RunDir, notify: str | None, program: str = SAY, word: str = "FINISHED") -> int:
    command = (sys.executable, "-c", program, str(run.path), word)
    return Supervisor(str(run.path), "h2-abc", command, 1.0, notify=notify).supervise(JOB)


def test_the_end_of_a_job_is_told_with_who_where_and_when(run, slurm, listener):
    before = time.time()
    assert supervise(run, listener.command) == 0
    (told,) = listener.documents
    times = [told.pop(key) for key in ("submitted_at", "started_at", "ended_at")]
    assert before - 60 < times[0] <= times[1] <= times[2] <= time.time()
    assert told == {
        "schema_version": 1,
        "event": "run_ended",
        "run_id": "h2-0123456789",
        "name": "h2",
        "point": {"R": 1.4},
        "seed": 0,
        "state": "FINISHED",
        "message": "so it ended",
        "run_dir": str(run.path),
        "log": str(run.log_path),
        "results": str(run.store_path),
        "host": Process.of_pid(os.getpid()).host,
        "job_id": "22_3",
    }


@pytest.mark.parametrize(
    ("program", "word", "state"),
    [
        (SAY, "FAILED", "FAILED"),
        (SAY, "DIVERGED", "DIVERGED"),
        (KILLED, "", "DEAD"),
        ("import sys; sys.exit(7)", "", "FAILED"),
    ],
)
def test_an_end_that_nobody_wanted_is_told_too(run, slurm, listener, program, word, state):
    assert supervise(run, listener.command, program, word) != 0
    assert [told["state"] for told in listener.documents] == [state]


def test_a_worker_that_cannot_be_started_is_an_end(run, slurm, listener):
    command = (DOES_NOT_START,)
    Supervisor(str(run.path), "h2-abc", command, 1.0, notify=listener.command).supervise(JOB)
    (told,) = listener.documents
    assert (told["state"], "/absent" in told["message"]) == ("FAILED", True)


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_attempt_that_goes_on_is_no_end_and_one_that_nobody_brings_back_is(
    run, slurm, listener, monkeypatch, is_refused
):
    """Requeued, the run has not ended; told of every preemption, nobody would listen any more."""
    monkeypatch.setattr("vmcjob.supervisor.endings.RETRY_S", 0.01)
    if is_refused:
        answer = "JobId=25 JobState=TIMEOUT Restarts=0"
        path = slurm.folder / "scontrol"
        path.write_text(f'#!/bin/sh\n[ "$1" = requeue ] && exit 1\necho "{answer}"\n')
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped"))
    attempt = Attempt(run, JOB, 1, 75, "SIGURG", has_moved=True, notify=listener.command)
    assert conclude(attempt) == 75
    assert [told["state"] for told in listener.documents] == (["PREEMPTED"] if is_refused else [])


def test_a_cancelled_run_has_ended(run, slurm, listener):
    submission = run.read_submission()
    assert submission is not None
    run.write_submission(replace(submission, cancelled_at=time.time()))
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped"))
    attempt = Attempt(run, JOB, 1, 75, "SIGTERM", has_moved=True, notify=listener.command)
    assert conclude(attempt) == 75
    assert [told["state"] for told in listener.documents] == ["CANCELLED"]
    assert slurm.calls("scontrol") == []


def test_one_end_is_told_once_and_that_of_another_submission_again(run, slurm, listener):
    """SLURM starts a job again whose node failed after its run had finished."""
    supervise(run, listener.command)
    supervise(run, listener.command)
    assert len(listener.documents) == 1
    run.write_submission(Submission(scheduler="slurm", job_id="23", job_name="h2-def"))
    notify_run(run, listener.command)
    assert len(listener.documents) == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/absent/notify --all", "cannot be started on"),
        ("/bin/sh -c 'echo no mail today >&2; exit 3'", "exit code 3"),
        ("/bin/sh -c 'kill -9 $$'", "SIGKILL"),
        ("/bin/sh -c '/bin/sleep 600 & /bin/sleep 600'", "did not end within 0.4 s, and"),
    ],
)
def test_what_becomes_of_the_command_does_not_disturb_the_run(
    run, slurm, monkeypatch, command, words
):
    if "sleep" in command:
        monkeypatch.setattr(notification, "MAX_S", 0.4)
    began = time.monotonic()
    assert supervise(run, command) == 0
    assert time.monotonic() - began < 500
    assert words in run.log_path.read_text()
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.outcome is Outcome.FINISHED
    if "no mail" in command:
        assert "no mail today\n" in run.log_path.read_text()


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    """A shell's child would keep waiting for ever on a compute host that others use."""
    monkeypatch.setattr(notification, "MAX_S", 5.0)
    pid = tmp_path / "pid"
    call(f"/bin/sh -c '/bin/sleep 600 & echo $! > {pid}; wait'", {}, tmp_path / "log", tmp_path)
    number = int(pid.read_text())
    wait_until(lambda: not Process.of_pid(number).is_alive() or _is_zombie(number), "it is gone")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_that_reads_nothing_is_as_good_as_one_that_does(tmp_path):
    """As many runs as there may be: more than a pipe holds."""
    call("/bin/true", {"runs": ["x" * 100] * 10_000}, tmp_path / "log", tmp_path)
    assert (tmp_path / "log").read_text() == ""


def test_a_run_that_was_removed_is_not_spoken_of(tmp_path, listener):
    notify_run(RunDir(tmp_path / "h2-0123456789"), listener.command)
    assert not listener


def test_a_submission_to_this_machine_ends_when_all_its_runs_have(tmp_path, listener):
    """Of the two ends of its runs and its own, its own comes last and has all of them."""
    us, root = Process.of_pid(os.getpid()), tmp_path / "runs"
    runs = [make_run(root, f"h2-{digit * 10}") for digit in "12"]
    for run in runs:
        run.write_submission(
            Submission(scheduler="local", job_id="local-1", pid=us.pid, process_start=us.start)
        )
    program = SAY.replace("sys.argv[2]", "'FINISHED' if '1111111111' in sys.argv[1] else 'FAILED'")
    order = Order(tuple(run.path for run in runs), 1, (sys.executable, "-c", program))
    order = replace(order, notify=listener.command)
    scheduler.serve(root, BytesIO(order.to_json()))
    *ends, last = listener.documents
    assert [(told["run_id"], told["state"]) for told in ends] == [
        ("h2-1111111111", "FINISHED"),
        ("h2-2222222222", "FAILED"),
    ]
    assert (last["event"], last["states"]) == ("submission_ended", {"FINISHED": 1, "FAILED": 1})
    assert last["runs_root"] == str(root)
    assert [told["run_dir"] for told in last["runs"]] == [str(run.path) for run in runs]


def test_a_local_worker_that_cannot_be_started_is_told_of(tmp_path, listener):
    run, us = make_run(tmp_path / "runs"), Process.of_pid(os.getpid())
    run.write_submission(
        Submission(scheduler="local", job_id="local-1", pid=us.pid, process_start=us.start)
    )
    order = Order((run.path,), 1, (DOES_NOT_START,), listener.command)
    scheduler.serve(run.path.parent, BytesIO(order.to_json()))
    assert [told["event"] for told in listener.documents] == ["run_ended", "submission_ended"]
    assert listener.documents[0]["state"] == "FAILED"


@pytest.mark.parametrize(
    ("outcome", "is_cancelled", "state"),
    [
        (Outcome.FINISHED, True, State.FINISHED),  # before it could be stopped
        (Outcome.PREEMPTED, True, State.CANCELLED),
        (Outcome.PREEMPTED, False, State.PREEMPTED),
        (None, True, State.CANCELLED),
        (None, False, State.DEAD),
    ],
)
def test_the_state_of_an_end_is_what_status_says(outcome, is_cancelled, state):
    record = OutcomeRecord(outcome=outcome) if outcome else None
    assert final_state(record, None, is_cancelled=is_cancelled) is state


def test_a_program_that_is_not_here_is_warned_of(programs):
    """It may be on the compute hosts, so that the submission goes on."""
    programs.make("notify-me")
    assert why_not_found("notify-me --all") is None
    words = why_not_found("notify-him --all")
    assert words is not None
    assert words.startswith("notify: no program notify-him on this host")


def test_who_names_no_command_is_told_nothing(run, slurm):
    supervise(run, None)
    assert run.read_notification() is None


def submit_job(run: RunDir, at: float) -> None:
    run.write_submission(
        Submission(scheduler="slurm", job_id="22_3", job_name="h2-abc", submitted_at=at)
    )


def test_the_last_job_of_a_submission_tells_of_its_end(tmp_path, slurm, listener):
    first, second, before = (make_run(tmp_path / "runs", f"h2-{d * 10}") for d in "012")
    submit_job(before, 50.0)
    before.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
    names = [run.path.name for run in (first, second, before)]
    Group(devices=dict.fromkeys(names, 1.0), submitted_at=100.0).write(first.path.parent)
    for run in (first, second):
        submit_job(run, 100.0)
    supervise(first, listener.command)
    assert [told["event"] for told in listener.documents] == ["run_ended"]
    supervise(second, listener.command, word="FAILED")
    last = listener.documents[-1]
    assert [told["event"] for told in listener.documents[1:]] == ["run_ended", "submission_ended"]
    assert last["states"] == {"FINISHED": 2, "FAILED": 1}
    supervise(second, listener.command, word="FAILED")
    assert len(listener.documents) == 3, "once"


def test_a_job_that_was_cancelled_in_the_queue_keeps_nobody_waiting(tmp_path, slurm, listener):
    first, second = (make_run(tmp_path / "runs", f"h2-{d * 10}") for d in "01")
    group = Group(devices={first.path.name: 1.0, second.path.name: 1.0}, submitted_at=100.0)
    group.write(first.path.parent)
    submit_job(first, 100.0)
    supervise(first, listener.command)
    assert len(listener.documents) == 1, "the second has been left for later"
    group.write(first.path.parent)
    submit_job(second, 100.0)
    given = second.read_submission()
    assert given is not None
    second.write_submission(replace(given, cancelled_at=101.0))
    submit_job(first, 102.0)
    supervise(first, listener.command)
    assert listener.documents[-1]["event"] == "submission_ended"
