"""Many SLURM jobs taken back by few calls, here by stand-ins; and workers that nobody has."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import make_run, wait_until
from vmcjob import scheduler
from vmcjob.rundir import RunDir, Submission
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.slurm.scancel import MAX_JOBS

SUPERVISOR = """
import sys
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor import Supervisor
command = (sys.executable, "-c", sys.argv[2], sys.argv[1])
Supervisor(sys.argv[1], "h2-abc", command, 1.0).supervise(SlurmJob("22", "22", 0))
"""
# Computes until it is asked to stop, in whatever way.
WORKER = """
import sys, time
from pathlib import Path
from vmcjob.run.stop import describe, stop_on_signals
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Activity, RunDir

run = RunDir(Path(sys.argv[1]))
with stop_on_signals() as stop:
    run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=1, n_steps=10))
    while not stop.number:
        time.sleep(0.02)
run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message=describe(stop.number)))
"""
# One that does not know of supervisors, as in an image of before.
DEAF = WORKER.replace("with stop", "import os; os.environ.pop('VMCJOB_SUPERVISED')\nwith stop")


def submitted(root: Path, index: int, **changes) -> RunDir:
    run = make_run(root, f"h2-{index:010}")
    values = {"job_id": f"22_{index}", "job_name": "h2-abc", "array_index": index}
    run.write_submission(Submission(scheduler="slurm", **(values | changes)))
    return run


def is_cancelled(run: RunDir) -> bool:
    submission = run.read_submission()
    assert submission is not None
    return submission.cancelled_at is not None


@pytest.fixture
def waiting(programs, tmp_path) -> list[RunDir]:
    """Runs whose jobs wait, more than one call of scancel takes."""
    count = 2 * MAX_JOBS + 5
    lines = (f"22_{index}|h2-abc|PENDING|N/A|Priority\n" for index in range(count))
    programs.make("squeue", "".join(lines))
    programs.make("scancel")
    return [submitted(tmp_path, index) for index in range(count)]


def test_many_runs_are_cancelled_by_few_calls(programs, waiting):
    done = scheduler.cancel(waiting)
    assert [item.run for item in done] == waiting
    assert done[7].result == "job 22_7 is being cancelled"
    assert all(map(is_cancelled, waiting))
    assert len(programs.calls("squeue")) == 1
    told = [call.split() for call in programs.calls("scancel")]
    assert list(map(len, told)) == [MAX_JOBS, MAX_JOBS, 5]
    assert [job_id for ids in told for job_id in ids] == [f"22_{i}" for i in range(len(waiting))]


def test_a_job_that_slurm_does_not_end_is_named_and_the_others_are_cancelled(programs, waiting):
    words = "scancel: error: Kill job error on job id 22_3: Access/permission denied\n"
    programs.make("scancel", code=1, error=words)
    done = scheduler.cancel(waiting[:5])
    assert [item.error is None for item in done] == [True, True, True, False, True]
    assert "permission denied" in str(done[3].error)
    assert list(map(is_cancelled, waiting[:5])) == [True, True, True, False, True]


@pytest.mark.parametrize("program", ["squeue", "scancel"])
def test_a_controller_that_is_away_cancels_nothing_and_nothing_is_said_to_be(
    programs, waiting, program
):
    programs.make(program, code=1, error=f"{program}: error: Unable to contact slurm controller\n")
    done = scheduler.cancel(waiting[:3])
    assert ["Unable to contact" in str(item.error) for item in done] == [True] * 3
    assert not any(map(is_cancelled, waiting[:3]))


def has_worker(run: RunDir) -> bool:
    submission = run.read_submission()
    return submission is not None and submission.worker is not None


@pytest.fixture
def orphan(programs, tmp_path, request):
    """A run whose supervisor was killed, and with it the job, while its worker computes."""
    programs.make("squeue", "22 N/A UNLIMITED\n")
    programs.make("scontrol")
    run = submitted(tmp_path, 0, job_id="22", array_index=None)
    command = [sys.executable, "-c", SUPERVISOR, str(run.path), request.param]
    with subprocess.Popen(command) as supervisor:
        wait_until(run.read_heartbeat, "it computes")
        wait_until(lambda: has_worker(run), "its supervisor knows it")
        supervisor.kill()
    programs.make("squeue")
    yield run
    beat = run.read_heartbeat()
    if beat is not None and beat.process.is_alive():
        os.kill(beat.pid, signal.SIGKILL)


@pytest.mark.parametrize("orphan", [WORKER], indirect=True)
def test_a_worker_does_not_outlive_its_supervisor(orphan):
    """Its allocation is gone with it, and the next attempt may begin any moment."""
    wait_until(orphan.read_outcome, "it has stopped at a checkpoint")
    row = examine(orphan, scheduler.look([orphan]))
    assert row.state is State.PREEMPTED
    assert row.message == "stopped, for its supervisor had been killed"


@pytest.mark.parametrize("orphan", [DEAF], indirect=True)
def test_a_worker_whose_job_is_over_is_found_by_its_heartbeat_and_stopped(orphan, programs):
    """scancel would say nothing, and do nothing: there is no such job."""
    assert examine(orphan, scheduler.look([orphan])).state is State.RUNNING
    (done,) = scheduler.cancel([orphan])
    assert done.result == "its job is over; asked to stop at its next checkpoint"
    assert programs.calls("scancel") == []
    wait_until(orphan.read_outcome, "it has stopped at a checkpoint")
    assert examine(orphan, scheduler.look([orphan])).state is State.CANCELLED
    assert scheduler.cancel([orphan])[0].result == "not active (cancelled)"
