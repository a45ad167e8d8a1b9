"""The supervisor with real, if simple, workers; SLURM's programs are stand-ins."""

import hashlib
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest

from tests.runs import Programs, make_run, wait_until
from vmcjob import scheduler
from vmcjob.apptainer.container import digest as image_digest
from vmcjob.errors import SchedulerError
from vmcjob.protocol.rank import ALONE, Rank
from vmcjob.rundir import (
    RESULTS,
    Activity,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    RunDir,
    Sequel,
    Submission,
)
from vmcjob.runs.status import JobState, Stage, State, examine
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor import Supervisor, watch
from vmcjob.supervisor.sequel import EndOfJob, run_sequel

JOB = SlurmJob("22_3", "25", 0)
# Counts the stop signals that come, and stops at a checkpoint after the first and half a second.
WORKER = """
import signal, sys, time
from pathlib import Path
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Activity, RunDir

run = RunDir(Path(sys.argv[1]))
n_signals = 0

def count(number, frame):
    global n_signals
    n_signals += 1

signal.signal(signal.SIGUSR2, count)
run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=int(sys.argv[2]), n_steps=10))
print("ready", flush=True)
while not n_signals:
    time.sleep(0.02)
time.sleep(0.5)
print("signals", n_signals, flush=True)
run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped"))
sys.exit(75)
"""


@pytest.fixture
def run(tmp_path) -> RunDir:
    run = make_run(tmp_path)
    run.write_submission(
        Submission(scheduler="slurm", job_id=None, job_name="h2-abc", array_index=3)
    )
    return run


@pytest.fixture
def slurm(programs) -> Programs:
    """Asked politely, it has no end of the wall time, cancels nothing and requeues everything."""
    programs.make("squeue", "25 N/A UNLIMITED\n")
    programs.make("scontrol", "JobId=25 JobState=RUNNING Restarts=0\n")
    return programs


def supervisor(run: RunDir, program: str, *arguments: str, spare_s: float = 1.0) -> Supervisor:
    command = (sys.executable, "-c", program, str(run.path), *arguments)
    return Supervisor(str(run.path), "h2-abc", command, spare_s)


def supervise(
    run: RunDir,
    *numbers: signal.Signals,
    step: int = 1,
    spare_s: float = 1.0,
    program: str = WORKER,
) -> int:
    """An attempt of a worker in which SLURM sends these signals as soon as it is ready."""

    def interfere() -> None:
        wait_until(lambda: run.log_path.exists() and "ready" in run.log_path.read_text(), "ready")
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.1)

    thread = threading.Thread(target=interfere)
    thread.start()
    try:
        return supervisor(run, program, str(step), spare_s=spare_s).supervise(JOB)
    finally:
        thread.join()


def test_a_finished_worker_ends_the_job_well(run, slurm):
    program = """
import sys
from pathlib import Path
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
print("hello")
RunDir(Path(sys.argv[1])).write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
"""
    assert supervisor(run, program).supervise(JOB) == 0
    assert run.log_path.read_text() == "hello\n"
    submission = run.read_submission()
    assert submission is not None
    assert (submission.job_id, submission.pid) == ("22_3", os.getpid())
    assert submission.worker is not None
    assert submission.started_at is not None
    assert slurm.calls("scontrol") == []


@pytest.mark.parametrize("outcome", ["FINISHED", "FAILED", "PREEMPTED"])
def test_only_a_finished_run_has_a_sequel_and_its_failure_changes_nothing(run, slurm, outcome):
    """A run that was killed must not be followed by the next geometry of a path."""
    program = f"""
import sys
from pathlib import Path
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
RunDir(Path(sys.argv[1])).write_outcome(OutcomeRecord(outcome=Outcome.{outcome}))
sys.exit({{"FINISHED": 0, "FAILED": 1, "PREEMPTED": 75}}["{outcome}"])
"""
    sequel = sys.executable, "-c", "print('the sequel'); raise SystemExit(3)"
    code = replace(supervisor(run, program), sequel=sequel).supervise(JOB)
    assert (code == 0) == (outcome == "FINISHED")
    assert ("the sequel" in run.log_path.read_text()) == (outcome == "FINISHED")
    ended, record = run.read_outcome(), run.read_sequel()
    assert ended is not None
    assert ended.outcome is Outcome[outcome]
    assert (record and record.why) == ("the sequel" if outcome == "FINISHED" else None)


def test_a_job_that_starts_again_after_its_run_has_finished_only_repeats_the_sequel(run, slurm):
    """A newer outcome would have a path of geometries begin anew behind this run."""
    program = """
import sys
from pathlib import Path
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
run = RunDir(Path(sys.argv[1]))
run.store_path.mkdir()
(run.store_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
"""
    sequel = sys.executable, "-c", "print('the sequel')"
    twice = replace(supervisor(run, program), sequel=sequel)
    assert twice.supervise(JOB) == 0
    ended = run.read_outcome()
    assert twice.supervise(JOB) == 0
    assert run.read_outcome() == ended
    assert run.log_path.read_text() == "the sequel\nthe sequel\n"


def test_a_job_of_its_own_goes_on_with_a_run_that_another_job_has_finished(run, slurm):
    """A clock that is ahead on another host must not make the new job idle."""
    run.store_path.mkdir()
    (run.store_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED, time=time.time() + 3600.0))
    assert supervisor(run, "print('at work'); raise SystemExit(1)").supervise(JOB) == 1
    assert run.log_path.read_text().startswith("at work\n")


class Soon:
    """The end of the job comes when the command has written to the log; or it has come already."""

    def __init__(self, run: RunDir, *, is_late: bool = False) -> None:
        self._run, self._is_late = run, is_late

    def has_come(self) -> bool:
        return self._is_late or "ready" in self._run.log_path.read_text()


@pytest.fixture
def finished(run) -> RunDir:
    """A run whose job has finished it, with a store."""
    run.store_path.mkdir()
    (run.store_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
    run.log_path.touch()
    return run


LONG = "print('ready', flush=True); import time; time.sleep(60)"
UNTIL_TOLD = """
import signal, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
print("ready", flush=True)
while not told:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("command", "is_late", "why"),
    [
        (["/no/such/program"], False, "/no/such/program: No such file or directory"),
        ([sys.executable, "-c", "raise SystemExit('vmcjob: no forces')"], False, "no forces"),
        ([sys.executable, "-c", "1 / 0"], True, "its job was about to end"),
        ([sys.executable, "-c", LONG], False, "its job was about to end"),
        ([sys.executable, "-c", UNTIL_TOLD], False, None),
        ([sys.executable, "-c", "import os, sys; os.remove('{}'); sys.exit(3)"], False, None),
    ],
    ids=["no program", "failure", "too late", "cut short", "submitting", "end of the path"],
)
def test_status_tells_why_no_run_follows_and_what_goes_on(finished, command, is_late, why):
    """A chain that stops without a word looks finished.

    A command that submits must end by itself, whatever the time; another one must not outlast it.
    """
    run, name = finished, finished.path.name
    command = [word.replace("{}", str(run.sequel_path)) for word in command]
    run_sequel(run, command, Soon(run, is_late=is_late))
    assert "ZeroDivisionError" not in run.log_path.read_text()
    message = examine(run).message
    if why is None:
        assert message == ""
        return
    assert message.startswith("the next run of its path was not submitted: ")
    assert why in message
    assert message.endswith(f"; vmcjob resume {name} goes on")


def test_a_job_that_is_killed_in_the_sequel_leaves_a_word(finished):
    """The record must come before the command: a killed job writes nothing afterwards."""
    seen = f"from pathlib import Path; print(Path({str(finished.sequel_path)!r}).exists())"
    run_sequel(finished, [sys.executable, "-c", seen], Soon(finished))
    assert finished.log_path.read_text() == "True\n"
    finished.write_sequel(Sequel())
    assert "if none appears, vmcjob resume" in examine(finished).message


def test_the_sequel_ends_before_the_wall_time_and_after_a_termination(finished, slurm):
    """Cut short by SLURM, it would leave a job that ended by a time-out, and no reason."""
    inbox = watch.Inbox()
    assert not EndOfJob(JOB, 20.0, inbox).has_come(), "without an end of the wall time"
    slurm.make("squeue", f"25 {time.time() + 15:.0f} UNLIMITED\n")
    assert not EndOfJob(JOB, 20.0, inbox).has_come()
    assert EndOfJob(JOB, 40.0, inbox).has_come()
    inbox.put("SIGTERM")
    assert EndOfJob(JOB, 0.0, inbox).has_come()


def test_a_cancelled_run_has_no_sequel(finished):
    """It would be followed by a job that nobody wants."""
    before = finished.read_submission()
    assert before is not None
    finished.write_submission(replace(before, cancelled_at=time.time()))
    run_sequel(finished, [sys.executable, "-c", "print('ready')"], Soon(finished))
    assert finished.log_path.read_text() == ""
    assert finished.read_sequel() is None


def test_a_run_that_is_cancelled_while_its_worker_is_started_stays_cancelled(run, slurm):
    """Of a job that others share, that record is all that stops it."""
    before = run.read_submission()
    assert before is not None
    cancelled = replace(before, cancelled_at=time.time())
    program = "import time; time.sleep(0.1)"

    class Slow(Supervisor):
        def _prepare(self, run: RunDir, rank: Rank) -> None:
            run.write_submission(cancelled)

    command = (sys.executable, "-c", program)
    Slow(str(run.path), "h2-abc", command, 1.0).supervise(JOB)
    submission = run.read_submission()
    assert submission is not None
    assert submission.cancelled_at is not None
    assert submission.worker is not None


def test_of_many_signals_the_worker_hears_one_and_its_element_alone_is_requeued(run, slurm):
    """SLURM signals the whole tree, and warns before it terminates."""
    signals = (signal.SIGURG, signal.SIGCONT, signal.SIGTERM, signal.SIGURG)
    assert supervise(run, *signals) == 75
    assert run.log_path.read_text().splitlines() == ["ready", "signals 1"]
    assert slurm.calls("scontrol") == ["requeue 22_3"]
    assert [(line["event"], line["how"]) for line in run.read_attempts()] == [("stop", "SIGURG")]


@pytest.mark.parametrize(
    ("answer", "is_cancelled"),
    [
        ("JobId=25 JobState=RUNNING Restarts=0 PreemptTime=2026-11-22T21:38:44", False),
        ("JobId=25 JobState=COMPLETING Restarts=0 PreemptTime=2026-11-22T21:38:44", False),
        ("JobId=25 JobState=COMPLETING Restarts=0 RunTime=00:00:09 TimeLimit=01:00:00", True),
    ],
)
def test_who_began_after_the_signal_finds_a_time_that_is_over_and_not_one_too_short(
    run, slurm, answer, is_cancelled
):
    """Preempted or cancelled in its setup, a job has half a minute left, and no signal comes."""
    slurm.make("squeue", f"25 {time.time() + 2:.0f} UNLIMITED\n")
    slurm.make("scontrol", f"{answer}\n")
    run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=1, n_steps=10))
    assert supervisor(run, WORKER, "1", spare_s=90.0).supervise(JOB) == 75
    outcome, submission = run.read_outcome(), run.read_submission()
    assert outcome is not None
    assert outcome.outcome is Outcome.PREEMPTED
    assert submission is not None
    assert (submission.cancelled_at is not None) is is_cancelled
    requeues = [call for call in slurm.calls("scontrol") if "requeue" in call]
    assert requeues == ([] if is_cancelled else ["requeue 22_3"])


def test_a_signal_that_comes_while_slurm_is_asked_stops_the_worker_when_there_is_one(run, slurm):
    """submitit's own handlers would requeue on their account, or swallow it."""

    class Warning(SlurmJob):
        def end_time(self, patience_s: float = 1.0) -> float | None:
            os.kill(os.getpid(), signal.SIGURG)
            return super().end_time(patience_s)

    program = "import time; time.sleep(20)"
    assert supervisor(run, program).supervise(Warning("22_3", "25", 0)) == 75
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.message.startswith("stopped by SIGURG before it began")
    assert slurm.calls("scontrol") == ["requeue 22_3"]


def test_a_worker_that_a_signal_does_not_reach_is_told_again(run, slurm, monkeypatch):
    """Apptainer loses those of a moment in which it mounts an image; the worker would go on."""
    monkeypatch.setattr(watch, "TELL_AGAIN_S", 0.5)
    deaf = "import signal, time; signal.signal(12, signal.SIG_IGN); print('ready', flush=True)"
    deaf += f"; time.sleep(1.5)\n{WORKER}"
    assert supervise(run, signal.SIGURG, program=deaf) == 75
    assert [line["event"] for line in run.read_attempts()] == ["stop"]
    assert slurm.calls("scontrol") == ["requeue 22_3"]


def test_a_cancelled_run_stops_though_no_signal_reaches_its_node(run, slurm):
    """A node that slurmctld has given up works on: scancel ends nothing there."""

    def cancel() -> None:
        wait_until(lambda: run.log_path.exists() and "ready" in run.log_path.read_text(), "ready")
        submission = run.read_submission()
        assert submission is not None
        run.write_submission(replace(submission, cancelled_at=time.time()))

    thread = threading.Thread(target=cancel)
    thread.start()
    assert supervisor(run, WORKER, "1").supervise(JOB) == 75
    thread.join()
    (stop,) = run.read_attempts()
    assert (stop["event"], stop["how"]) == ("stop", "cancel")
    assert slurm.calls("scontrol") == []


def test_a_worker_that_another_one_keeps_out_leaves_the_run_to_it(run, slurm):
    """It is on a lost node and works on. What it does, not what we say, is how the run ends."""
    with run.lock():
        assert supervisor(run, "raise SystemExit(1)").supervise(JOB) == 1
    assert run.read_outcome() is None
    (refused,) = run.read_attempts()
    assert refused["event"] == "refused"
    assert f"already being run by pid {os.getpid()}" in str(refused["how"])


def test_the_deadline_comes_before_the_end_of_the_wall_time(run, slurm):
    end = time.time() + 30
    slurm.make("squeue", f"25 {end:.0f} UNLIMITED\n")
    assert supervise(run, spare_s=22.0) == 75
    assert time.time() < end
    assert [call.split()[0] for call in slurm.calls("scontrol")] == ["--all", "requeue"]


def test_a_wall_time_too_short_for_a_step_is_a_failure_and_no_endless_requeueing(run, slurm):
    assert supervise(run, signal.SIGURG) == 75
    slurm.make("squeue", f"25 {time.time() + 2:.0f} UNLIMITED\n")
    assert supervisor(run, WORKER, "1").supervise(JOB) == 1  # at the same step again
    outcome = run.read_outcome()
    assert outcome is not None
    assert (outcome.outcome, "ask for more (-t)" in outcome.message) == (Outcome.FAILED, True)
    assert sum("requeue" in call for call in slurm.calls("scontrol")) == 1


@pytest.mark.parametrize(
    ("answer", "is_cancelled", "n_requeues"),
    [
        ("JobId=25 JobState=COMPLETING Restarts=0", True, 0),
        ("JobId=25 JobState=COMPLETING Restarts=1", False, 0),  # being requeued
        ("JobId=25 JobState=RUNNING Restarts=0", False, 1),  # SLURM has forgotten why
        ("JobId=25 JobState=NODE_FAIL Reason=NodeDown Restarts=0", False, 1),  # set down
    ],
)
def test_a_termination_is_a_cancellation_unless_slurm_brings_the_job_back(
    run, slurm, answer, is_cancelled, n_requeues
):
    """After SIGTERM, whether there is another attempt is decided by SLURM, if it knows."""
    slurm.make("scontrol", answer)
    assert supervise(run, signal.SIGTERM) == 75
    submission = run.read_submission()
    assert submission is not None
    assert (submission.cancelled_at is not None) is is_cancelled
    assert sum("requeue" in call for call in slurm.calls("scontrol")) == n_requeues


@pytest.mark.parametrize(
    ("program", "code", "outcome", "how"),
    [
        ("raise SystemExit(3)", 3, Outcome.FAILED, "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", 9, None, "SIGKILL"),
        ("raise SystemExit(137)", 9, None, "SIGKILL"),  # as a container reports it
    ],
)
def test_a_worker_without_a_word_has_failed_or_is_dead(run, slurm, program, code, outcome, how):
    assert supervisor(run, program).supervise(JOB) == code
    found = run.read_outcome()
    assert (found.outcome if found else None) == outcome
    assert run.read_attempts()[-1]["how"] == how
    assert slurm.calls("scontrol") == []


def test_the_last_line_of_a_container_that_does_not_start_is_told(run, slurm, tmp_path):
    """`status` said "exit code 1" alone; a line of an earlier attempt is no reason of this one."""
    image = tmp_path / "vmc.sif"
    image.write_bytes(b"image")
    image_digest.cache_clear()
    program = "print('WARNING: a\\n\\33[91mERROR: no capability\\33[0m\\n'); raise SystemExit(1)"
    command, digest = (sys.executable, "-c", program), hashlib.sha256(b"image")
    names = str(run.path), "h2-abc"
    contained = Supervisor(*names, command, 1.0, str(image), digest.hexdigest())
    assert contained.supervise(JOB) == 1
    begin = "the worker ended by exit code 1"
    container = "and vmcjob doctor --on-node tries its container"
    logs = f"vmcjob logs {run.path.name} shows its log"
    assert examine(run).message == f"{begin}: ERROR: no capability; {logs}, {container}"
    silent = replace(contained, command=(sys.executable, "-c", "raise SystemExit(1)"))
    assert silent.supervise(JOB) == 1
    assert examine(run).message == f"{begin}; it wrote nothing to its log, {container}"


@pytest.mark.parametrize(("word", "code"), [("FINISHED", 0), ("PREEMPTED", 75)])
def test_a_signal_after_the_workers_last_word_changes_nothing(run, slurm, word, code):
    """It has taken its handlers down by then, and dies; what it said is what happened."""
    program = f"""
import os, sys
from pathlib import Path
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
RunDir(Path(sys.argv[1])).write_outcome(OutcomeRecord(outcome=Outcome.{word}))
os.kill(os.getpid(), 12)
"""
    assert supervisor(run, program).supervise(JOB) == code
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.outcome == word


@pytest.mark.parametrize("skew_s", [0.0, 3600.0])
@pytest.mark.parametrize("what", ["no program", "no apptainer", "no image", "another image"])
def test_what_kept_a_worker_from_starting_is_told_and_not_waited_for(
    run, slurm, tmp_path, what, skew_s
):
    """Nobody asks SLURM about a run that has failed; the compute host's clock may be behind."""
    image = tmp_path / "vmc.sif"
    image.write_bytes(b"image")
    digest = hashlib.sha256(b"image").hexdigest()
    contained = Supervisor(str(run.path), "h2-abc", ("/absent",), 1.0, str(image), digest)
    match what:
        case "no apptainer":
            contained = replace(contained, command=("apptainer",))
        case "no image":
            image.unlink()
        case "another image":
            contained = replace(contained, image_sha256="0" * 64)
    submission = run.read_submission()
    assert submission is not None
    run.write_submission(replace(submission, submitted_at=time.time() + skew_s))
    image_digest.cache_clear()
    assert contained.supervise(JOB) == 6
    words = {
        "no program": "/absent: No such file or directory on ",
        "no apptainer": "; [slurm] setup in the site profile has to put it on PATH there",
        "no image": "vmc.sif: cannot be read",
        "another image": "has changed since the run was submitted",
    }[what]
    row = examine(run, scheduler.look([run]))
    assert (row.state, words in row.message) == (State.FAILED, True)
    assert words in b"".join(run.read_log()).decode()


@pytest.mark.parametrize("what", ["a safe cache", "an open cache", "a file in its place"])
def test_a_run_goes_on_without_a_place_for_compiled_programs(
    run, slurm, tmp_path, monkeypatch, what
):
    """Apptainer would end at the bind of a folder that is missing, and no energy needs it."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    image, cache = tmp_path / "vmc.sif", tmp_path / "cache"
    image.write_bytes(b"image")
    digest = hashlib.sha256(b"image").hexdigest()
    folder = cache / digest[:16]
    if what == "a file in its place":
        cache.write_text("")
    else:
        folder.mkdir(parents=True, mode=0o700)
        folder.chmod(0o777 if what == "an open cache" else 0o700)
    program = sys.executable, "-c", "import sys; print(sys.argv[1:], flush=True)"
    command = (*program, "--bind", str(run.path), "--bind", str(cache), "vmc.sif")
    contained = Supervisor(
        str(run.path), "h2-abc", command, 1.0, str(image), digest, cache=str(cache)
    )
    image_digest.cache_clear()
    assert contained.supervise(JOB) == 0
    is_used = what == "a safe cache"
    binds = ["--bind", str(run.path), *(["--bind", str(cache)] if is_used else [])]
    assert run.log_path.read_text().splitlines()[0] == str([*binds, "vmc.sif"])
    environment = run.read_environment()
    assert environment is not None
    assert (f"JAX_COMPILATION_CACHE_DIR={folder}\n" in environment) is is_used


def test_a_job_whose_run_was_submitted_anew_or_cancelled_does_nothing(run, slurm):
    """It may start late, after its place has been taken."""
    submission = run.read_submission()
    assert submission is not None
    for changes in ({"job_name": "h2-def"}, {"cancelled_at": 1.0}):
        run.write_submission(replace(submission, **changes))
        assert supervisor(run, "raise SystemExit(3)").supervise(JOB) == 0
        assert not run.log_path.exists()


def test_a_job_that_slurm_starts_though_the_one_it_waits_for_was_cancelled_is_blocked(run, slurm):
    """SLURM 22.05 does so: nothing has failed, and nobody is told of an end."""
    other = make_run(run.path.parent, "h2-1111111111")
    cancelled = Submission(scheduler="slurm", job_id="22_2", job_name="h2-abc", cancelled_at=1.0)
    other.write_submission(cancelled)
    submission = run.read_submission()
    assert submission is not None
    waits = {other.path.name: RESULTS}
    run.write_submission(replace(submission, job_id="22_3", waits_for=waits))
    notify = f"touch {run.path.parent / 'told'}"
    waiting = replace(supervisor(run, "raise SystemExit(3)"), notify=notify)
    assert waiting.supervise(JOB) == 1
    row = examine(run, {run.path: JobState(Stage.ENDED, "22_3")})
    words = f"waits for {other.path.name}, which was cancelled; vmcjob resume {other.path.name} "
    assert (row.state, row.message) == (State.BLOCKED, f"{words}{run.path.name} goes on")
    assert run.read_outcome() is None
    assert not (run.path.parent / "told").exists()


def test_an_element_of_an_array_is_called_as_people_write_it():
    alone = {"SLURM_JOB_ID": "25"}
    element = alone | {"SLURM_ARRAY_JOB_ID": "22", "SLURM_ARRAY_TASK_ID": "3"}
    assert SlurmJob.from_environment(alone) == SlurmJob("25", "25", 0)
    assert SlurmJob.from_environment(element | {"SLURM_RESTART_COUNT": "2"}) == SlurmJob(
        "22_3", "25", 2
    )


def test_an_earlier_outcome_does_not_outlive_the_start(run, slurm):
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED))
    supervisor(run, "import os; os.kill(os.getpid(), 9)").supervise(JOB)
    assert run.read_outcome() is None


SECOND = Rank(1, 2, "n1:61452")
# What a rank beside the first writes is in its own files.
COMPANION = """
import sys
print(*sys.argv[2:])
raise SystemExit(int(sys.argv[2]))
"""


def test_a_job_of_several_tasks_has_a_rank_and_a_place_to_meet(slurm):
    slurm.make("scontrol", "n1\nn2\n")
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "n[1-2]"}
    assert JOB.rank(step) == Rank(1, 2, "n1:61465")
    assert slurm.calls("scontrol") == ["show hostnames n[1-2]"]
    assert JOB.rank({}) == JOB.rank({"SLURM_STEP_NUM_TASKS": "1"}) == ALONE
    slurm.make("scontrol", code=1)
    with pytest.raises(SchedulerError, match=r"scontrol show hostnames n\[1-2\]: no answer"):
        JOB.rank(step)


def test_a_rank_beside_the_first_leaves_the_runs_records_alone(run, slurm):
    """Two nodes that replace the same file would undo each other's words."""
    before = run.read_submission()
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED))
    assert supervisor(run, COMPANION, "0").supervise(JOB, SECOND) == 0
    assert run.read_submission() == before
    assert run.read_outcome() is not None
    assert run.read_attempts() == []
    assert not run.log_path.exists()
    assert b"".join(run.read_log(rank=1)) == b"0 --rank 1 --ranks 2 --coordinator n1:61452\n"
    assert slurm.calls("squeue") == slurm.calls("scontrol") == []


@pytest.mark.parametrize(("code", "expected", "how"), [(3, 3, "exit code 3"), (137, 9, "SIGKILL")])
def test_a_rank_beside_the_first_that_ends_badly_says_how_and_ends_the_job(
    run, slurm, code, expected, how
):
    """Its exit code makes srun end the others, which would wait for it."""
    assert supervisor(run, COMPANION, str(code)).supervise(JOB, SECOND) == expected
    (line,) = run.read_attempts()
    assert (line["event"], line["rank"], line["how"]) == ("lost", 1, how)
    assert run.read_outcome() is None


def test_a_first_rank_that_is_ended_for_a_lost_one_says_which(run, slurm):
    """srun's signal would look like a preemption, and nobody would read what went wrong."""
    supervisor(run, COMPANION, "3").supervise(JOB, SECOND)
    dying = supervisor(run, "import os, signal; os.kill(os.getpid(), signal.SIGUSR2)")
    assert dying.supervise(JOB) == signal.SIGUSR2
    outcome = run.read_outcome()
    assert outcome is not None
    assert (outcome.outcome, outcome.message) == (Outcome.FAILED, "rank 1 was lost: exit code 3")
    assert dying.supervise(replace(JOB, n_restarts=1)) == signal.SIGUSR2
    assert run.read_outcome() is None


def test_every_rank_in_a_container_has_an_environment_of_its_own(run, slurm, tmp_path):
    """Their GPUs have different names."""
    image = tmp_path / "vmc.sif"
    image.write_bytes(b"image")
    digest = hashlib.sha256(b"image").hexdigest()
    command = (sys.executable, "-c", COMPANION, "-", "0", str(run.environment_path))
    contained = Supervisor(
        str(run.path), "h2-abc", command, 1.0, image=str(image), image_sha256=digest
    )
    assert contained.supervise(JOB, SECOND) == 0
    own = run.environment_path_of(1)
    assert own.read_text() != ""
    assert not run.environment_path.exists()
    assert str(own).encode() in b"".join(run.read_log(rank=1))


def test_apptainer_hears_nothing_from_the_hosts_environment(run, slurm, tmp_path, monkeypatch):
    """What a module or a shell has set for other containers is not in container.env."""
    monkeypatch.setenv("APPTAINERENV_SECRET", "x")
    monkeypatch.setenv("SINGULARITY_BIND", "/secret")
    image = tmp_path / "vmc.sif"
    image.write_bytes(b"another image")
    digest = hashlib.sha256(b"another image").hexdigest()
    names = "import os; print(*[name for name in os.environ if name[:2] in ('AP', 'SI')])"
    contained = supervisor(run, names)
    assert replace(contained, image=str(image), image_sha256=digest).supervise(JOB, SECOND) == 0
    assert b"".join(run.read_log(rank=1)) == b"\n"
    assert contained.supervise(JOB, SECOND) == 0  # without an image, it is the user's own Python
    assert b"SINGULARITY_BIND" in b"".join(run.read_log(rank=1))


def test_a_rank_that_cannot_start_says_why_beside_the_outcome(run, slurm):
    """The outcome is the first one's to write; srun's killing it may leave none."""
    absent = Supervisor(str(run.path), "h2-abc", ("/absent",), 1.0)
    assert absent.supervise(JOB, SECOND) == 6
    (line,) = run.read_attempts()
    assert line["rank"] == 1
    assert line["how"].startswith("/absent: No such file or directory on ")
    assert run.read_outcome() is None
