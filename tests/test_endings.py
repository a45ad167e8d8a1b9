"""What follows when a worker has stopped half-way: SLURM's answers are those of stand-ins."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs import Programs, make_run
from vmcjob import scheduler
from vmcjob.protocol.rank import Rank
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir, Submission
from vmcjob.runs.status import JobState, Stage, State, examine
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor.endings import Attempt, conclude, note_loss
from vmcjob.supervisor.policy import MAX_REFUSALS
from vmcjob.supervisor.watch import Deadline

JOB = SlurmJob("22_3", "25", 0)
RUNNING = "JobId=25 JobState=RUNNING Restarts=0 PreemptTime=None"
IN_GRACE = "JobId=25 JobState=RUNNING Restarts=0 PreemptTime=1700000000"
RETURNING = "JobId=25 JobState=COMPLETING Restarts=1"
ENDING = "JobId=25 JobState=COMPLETING Restarts=0 RunTime=00:00:04 TimeLimit=01:00:00"
EVICTED = f"{ENDING} PreemptTime=1700000000"
TIMED_OUT = ENDING.replace("RunTime=00:00:04", "RunTime=1-01:00:04")
AWAY = "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr("vmcjob.supervisor.endings.RETRY_S", 0.01)


@pytest.fixture
def run(tmp_path) -> RunDir:
    """A run that has stopped at a checkpoint."""
    run = make_run(tmp_path)
    started = {"job_id": "22_3", "job_name": "h2-abc", "array_index": 3, "started_at": time.time()}
    run.write_submission(Submission(scheduler="slurm", **started))
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped by SIGUSR2"))
    return run


def make_scontrol(programs: Programs, show: str, *, refusals: int = 0, silence: int = 0) -> None:
    """A controller that is away for some calls, refuses some requeues, and knows one job."""
    programs.make("scontrol")
    calls = programs.folder / "scontrol.calls"
    path = programs.folder / "scontrol"
    path.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        f"[ $(/usr/bin/wc -l < {calls}) -le {silence} ] && {{ {AWAY}; }}\n"
        f'[ "$1" = requeue ] || {{ echo "{show}"; exit 0; }}\n'
        f"[ $(/bin/grep -c requeue {calls}) -gt {refusals} ]\n"
    )


def stop(run: RunDir, reason: str | None, folder: Path | None = None) -> RunDir:
    """End an attempt that was asked to stop for this reason."""
    attempt = Attempt(run, JOB, 1, 75, reason, has_moved=True)
    assert conclude(attempt, str(folder) if folder else None) == 75
    return run


def requeues(programs: Programs) -> list[str]:
    return [call for call in programs.calls("scontrol") if call.startswith("requeue")]


def state(run: RunDir, *, is_cancelled: bool = False) -> State:
    """As it is shown when the job has left the queue."""
    return examine(run, {run.path: JobState(Stage.ENDED, "22_3", is_cancelled=is_cancelled)}).state


def message(run: RunDir) -> str:
    outcome = run.read_outcome()
    assert outcome is not None
    return outcome.message


def test_a_job_in_its_grace_time_asks_for_itself_before_slurm_forgets_it(run, programs):
    """SLURM sent SIGTERM and waits; a job that ends meanwhile has simply failed."""
    make_scontrol(programs, IN_GRACE)
    stop(run, "SIGTERM")
    assert requeues(programs) == ["requeue 22_3"]
    assert message(run) == "stopped by SIGUSR2"


def test_a_job_that_slurm_brings_back_itself_asks_for_nothing(run, programs):
    make_scontrol(programs, RETURNING)
    stop(run, "SIGTERM")
    assert requeues(programs) == []
    assert message(run) == "stopped by SIGUSR2"


@pytest.mark.parametrize("ending", [EVICTED, TIMED_OUT, "JobId=25 JobState=TIMEOUT Restarts=0"])
@pytest.mark.parametrize("reason", ["SIGTERM", "SIGURG", "deadline"])
@pytest.mark.parametrize("refusals", [0, 99])
def test_a_job_that_slurm_ends_is_taken_back_or_says_that_its_run_can_go_on(
    run, programs, ending, reason, refusals
):
    """It was not cancelled: nobody wanted that. SLURM takes a job back while it is completing."""
    make_scontrol(programs, ending, refusals=refusals)
    stop(run, reason)
    assert len(requeues(programs)) == (MAX_REFUSALS if refusals else 1)
    assert state(run) is State.PREEMPTED
    lost = "its job does not come back, vmcjob resume goes on"
    assert message(run).endswith(lost) == (refusals > 0)


def test_a_job_that_somebody_has_ended_is_cancelled(run, programs):
    make_scontrol(programs, ENDING)
    assert state(stop(run, "SIGTERM")) is State.CANCELLED


def test_a_job_that_was_cancelled_in_its_grace_time_is_known_by_slurms_last_word(run, programs):
    make_scontrol(programs, EVICTED, refusals=9)
    assert state(stop(run, "SIGTERM"), is_cancelled=True) is State.CANCELLED


@pytest.mark.parametrize(
    ("reason", "answer"), [("deadline", RUNNING), ("SIGTERM", IN_GRACE), ("SIGTERM", RUNNING)]
)
def test_a_controller_that_is_away_is_asked_until_it_is_back(run, programs, reason, answer):
    """One that was killed does not know any more that it preempts the job."""
    make_scontrol(programs, answer, silence=12)
    stop(run, reason)
    assert requeues(programs)[-1] == programs.calls("scontrol")[-1] == "requeue 22_3"
    assert message(run) == "stopped by SIGUSR2"


def test_a_controller_that_was_killed_has_forgotten_that_it_preempts_the_job(run, programs):
    make_scontrol(programs, RUNNING)
    stop(run, "SIGTERM")
    assert requeues(programs) == ["requeue 22_3"]
    assert message(run) == "stopped by SIGUSR2"


def test_a_controller_that_refuses_is_not_asked_for_ever(run, programs):
    make_scontrol(programs, RUNNING, refusals=99)
    stop(run, "deadline")
    assert len(requeues(programs)) == MAX_REFUSALS
    assert state(run) is State.PREEMPTED
    make_scontrol(programs, RUNNING, refusals=1)  # once is no always
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED))
    stop(run, "deadline")
    assert message(run) == ""


@pytest.mark.parametrize("cancelled_at", [None, 1.0])
def test_a_run_that_was_cancelled_while_it_stopped_does_not_come_back(run, programs, cancelled_at):
    """By vmcjob, which says so before, or by scancel: SLURM is asked, for it would requeue both."""
    submission = run.read_submission()
    assert submission is not None
    run.write_submission(replace(submission, cancelled_at=cancelled_at))
    make_scontrol(programs, ENDING, refusals=9)
    assert state(stop(run, "deadline")) is State.CANCELLED
    assert requeues(programs) == []


def test_a_job_that_the_controller_has_forgotten_is_not_asked_for_for_ever(run, programs):
    programs.make("scontrol", code=1, error="slurm_load_jobs error: Invalid job id specified\n")
    assert state(stop(run, "deadline")) is State.PREEMPTED


def test_of_an_array_the_own_element_counts(run, programs):
    """The number of the last one to start is that of the array, and SLURM tells of all."""
    other = "JobId=24 ArrayJobId=25 JobState=CANCELLED Restarts=0"
    make_scontrol(programs, f"{other}\n{IN_GRACE}\n{other}")
    stop(run, "SIGTERM")
    assert requeues(programs) == ["requeue 22_3"]


@pytest.mark.parametrize(
    ("show", "is_noted", "state", "is_told"),
    [
        (RETURNING, False, State.QUEUED, False),
        (RETURNING, True, State.FAILED, True),  # by somebody, later: rank 1 has simply failed
        (TIMED_OUT, False, State.FAILED, True),
    ],
)
def test_an_end_of_several_nodes_is_told_when_it_is_one(
    run, programs, tmp_path, show, is_noted, state, is_told
):
    """A node dies whole, the other rank fails for it, and seconds later SLURM requeues the job."""
    make_scontrol(programs, show)
    run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="connection reset by peer"))
    if is_noted:
        note_loss(run, Rank(1, 2, "n1:1"), JOB, "exit code 1")
    told = tmp_path / "told"
    attempt = Attempt(run, JOB, 1, 1, None, has_moved=True, notify=f"/usr/bin/touch {told}")
    assert conclude(replace(attempt, n_ranks=2)) == 1
    job = JobState(Stage.WAITING if state is State.QUEUED else Stage.ENDED, "22_3")
    assert (examine(run, {run.path: job}).state, told.exists()) == (state, is_told)
    assert sum(line.get("event") == "retry" for line in run.read_attempts()) == (not is_told)


@pytest.fixture
def folder(tmp_path) -> Path:
    """What the run's submission has left."""
    folder = tmp_path / ".slurm" / "h2-abc"
    folder.mkdir(parents=True)
    (folder / "22_submission.sh").write_text("#!/bin/sh\n")
    (folder / "22_3_submitted.pkl").write_bytes(b"request")
    return folder


def test_where_the_profile_says_so_a_lost_job_submits_its_run_again(run, programs, folder):
    """With its own script and request, once; the new job is the one that counts from then on."""
    make_scontrol(programs, EVICTED, refusals=9)
    programs.make("sbatch", "Welcome\n31;testbed\n")
    stop(run, "SIGTERM", folder)
    script = folder / "22_submission.sh"
    assert programs.calls("sbatch") == [f"--parsable --array=3 --job-name=h2-abc {script}"]
    assert (folder / "31_3_submitted.pkl").read_bytes() == b"request"
    assert (folder / "31_submission.sh").read_text() == script.read_text()
    programs.make(
        "squeue",
        "31_3|h2-abc|PENDING|N/A|Priority\n22_3|h2-abc|COMPLETING|1700000000|None\n",
    )
    row = examine(run, scheduler.look([run]))
    assert (row.state, row.job_id) == (State.QUEUED, "31_3")
    assert row.message == "others come first"


def test_a_run_that_cannot_be_submitted_again_is_left_as_it_was(run, programs, folder):
    before = run.read_submission()
    make_scontrol(programs, EVICTED, refusals=9)
    programs.make("sbatch", code=1, error="no more\n")
    stop(run, "SIGTERM", folder)
    assert run.read_submission() == before
    assert state(run) is State.PREEMPTED
    assert message(run).endswith("vmcjob resume goes on")


def test_a_run_that_its_user_stopped_is_not_submitted_again(run, programs, folder):
    make_scontrol(programs, ENDING)
    stop(run, "SIGTERM", folder)
    assert programs.calls("sbatch") == []


def test_an_end_of_the_wall_time_that_is_not_known_yet_is_asked_for_again(programs, monkeypatch):
    """The controller may be away when the job starts; without an answer nothing would stop it."""
    programs.make("squeue", code=1)
    deadline = Deadline(JOB, 90.0)
    programs.make("squeue", f"25 {time.time():.0f} UNLIMITED\n")
    assert not deadline.has_come()  # just asked
    monkeypatch.setattr("vmcjob.supervisor.watch.ASK_AGAIN_S", 0.0)
    assert [deadline.has_come(), deadline.has_come()] == [False, True]


def test_a_wall_time_that_was_made_longer_is_used(programs):
    """By scontrol update; when nobody answers, what was said before holds."""
    end = time.time() + 80
    programs.make("squeue", f"25 {end:.0f} UNLIMITED\n")
    deadline = Deadline(JOB, 90.0)
    programs.make("squeue", f"25 {end + 600:.0f} UNLIMITED\n")
    assert not deadline.has_come()
    programs.make("squeue", f"25 {end:.0f} UNLIMITED\n")
    deadline = Deadline(JOB, 90.0)
    programs.make("squeue", code=1)
    assert deadline.has_come()
    programs.make("squeue", "25 N/A UNLIMITED\n")
    assert not Deadline(JOB, 90.0).has_come()


def test_of_an_array_the_own_elements_deadline_counts(programs):
    """Asked for the last element to start, with the array's id, squeue tells of all elements."""
    lines = "23 1700000000 10:00\n25 1900000000 UNLIMITED\n24 1700000000 10:00\n"
    programs.make("squeue", lines)
    assert JOB.end_time() == 1_900_000_000
    programs.make("squeue", "23 1700000000 10:00\n")
    assert JOB.end_time() is None


@pytest.mark.parametrize(
    ("limit", "seconds"), [("4:00", 240), ("2:00:00", 7200), ("1-00:00:01", 86401)]
)
def test_a_clock_that_is_late_does_not_outlast_the_time_limit(programs, limit, seconds):
    """SLURM tells the end by its own clock, and no job lasts longer than its time limit."""
    programs.make("squeue", f"25 {time.time() + 10 * seconds:.0f} {limit}\n")
    left = (replace(JOB, began=time.monotonic() - 60).end_time() or 0.0) - time.time()
    assert left == pytest.approx(seconds - 60, abs=30)  # a loaded machine is slow


def test_a_stop_for_no_reason_of_slurms_asks_it_for_nothing(run, programs):
    make_scontrol(programs, RUNNING)
    stop(run, None)
    assert programs.calls("scontrol") == []
    stop(run, signal.SIGINT.name)
    assert requeues(programs) == []
