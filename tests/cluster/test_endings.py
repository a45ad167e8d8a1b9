"""How jobs end before their time, on a real SLURM, and that nothing is lost by it."""

import os
import random
import signal
import time

import numpy as np
import pytest

from tests.cluster.cluster import Room, series
from vmcjob.rundir import Phase, RunDir

pytestmark = pytest.mark.timeout(900)

REPEATS = int(os.environ.get("VMCJOB_TEST_REPEATS", "2"))  # random moments for each way
WAYS = ("warning", "requeue", "kill", "deadline")


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory) -> dict[str, dict[str, np.ndarray]]:
    """The series of every run when it is left in peace."""
    room = Room(cluster, tmp_path_factory.mktemp("undisturbed"))
    room.run("submit", write_spec(room))
    room.wait_for(FINISHED=REPEATS)
    return {run.path.name: series(run) for run in room.list()}


def write_spec(room: Room) -> str:
    """One run for each random moment."""
    return room.spec(seeds=REPEATS, train=300, evaluate=6000)  # seconds, on any machine


def worker(run: RunDir) -> int:
    """The pid of the process that computes."""
    beat = run.read_heartbeat()
    assert beat is not None
    return beat.pid


def disturb(room: Room, run: RunDir, how: str) -> None:
    """Interfere with a run's attempt."""
    submission = run.read_submission()
    assert submission is not None
    assert submission.job_id is not None
    match how:
        case "warning":  # as SLURM sends it before a preemption, and before the wall time ends
            room.cluster.call("scancel", "--signal=URG", submission.job_id)
        case "requeue":
            room.cluster.call("scontrol", "requeue", submission.job_id)
        case "kill":
            os.kill(worker(run), signal.SIGKILL)
        case "deadline":  # or it might be done before, on a fast machine
            os.kill(worker(run), signal.SIGSTOP)


@pytest.mark.parametrize("how", WAYS)
def test_a_disturbed_run_ends_with_the_same_series(room, undisturbed, how):
    """Bit for bit, whenever it is disturbed; random moments find the state that is not kept."""
    wall_time = "00:01:00" if how == "deadline" else "00:10:00"
    room.run("submit", "-t", wall_time, write_spec(room))
    waits = random.Random(how)
    for run in room.list():  # held, or a fast machine would end one while another is disturbed
        room.wait_until(lambda run=run: is_computing(run), "it computes")
        os.kill(worker(run), signal.SIGSTOP)
    for run in room.list():
        os.kill(worker(run), signal.SIGCONT)
        time.sleep(waits.uniform(0.0, 1.0))
        disturb(room, run, how)
    if how == "deadline":
        logs = list(room.runs.glob(".slurm/*/*_log.err"))
        room.wait_until(
            lambda: all("asking the worker to stop" in log.read_text() for log in logs),
            "time is up",
        )
        for run in room.list():
            os.kill(worker(run), signal.SIGCONT)
    if how == "kill":
        room.wait_until(lambda: room.states()["DEAD"] == REPEATS, "all are dead")
        room.run("resume", "@last")
    room.wait_for(FINISHED=REPEATS)
    # One that was disturbed in its last block may have finished all the same.
    starts = [line for run in room.list() for line in run.read_attempts() if is_start(line)]
    assert len(starts) > REPEATS
    for run in room.list():
        recorded = series(run)
        for name, column in undisturbed[run.path.name].items():
            np.testing.assert_array_equal(recorded[name], column, err_msg=name)


def is_start(line: dict[str, object]) -> bool:
    return line["event"] == "start"


def is_computing(run: RunDir) -> bool:
    beat = run.read_heartbeat()
    return beat is not None and beat.steps_per_s is not None


def is_evaluating(run: RunDir) -> bool:
    beat = run.read_heartbeat()
    return beat is not None and beat.phase is Phase.EVALUATE and beat.step > 0


def test_a_cancelled_job_has_a_checkpoint_does_not_come_back_and_can_be_resumed(room):
    room.run("submit", room.spec(evaluate=100_000))
    run = room.only_run()
    room.wait_until(lambda: is_evaluating(run), "it evaluates")
    assert "is being cancelled" in room.run("cancel", "h")
    room.wait_for(CANCELLED=1)
    room.wait_until(lambda: not room.cluster.job_ids(room.cwd), "the job has left the queue")
    assert room.states() == {"CANCELLED": 1}
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome.outcome == "PREEMPTED"
    before = len(series(run)["evaluate/energy"])
    room.run("resume", "h")

    def beginnings() -> list[str]:
        return [line for line in run.log_path.read_text().splitlines() if ", from " in line]

    room.wait_until(lambda: len(beginnings()) == 2, "the second attempt has begun")
    assert f"evaluate step {before}/" in beginnings()[-1]
    room.wait_until(lambda: room.states()["RUNNING"], "it runs")
    room.cluster.call("scancel", *room.cluster.job_ids(room.cwd))
    room.wait_for(CANCELLED=1)  # by hand, and found out by the supervisor
    submission = run.read_submission()
    assert submission is not None
    assert submission.cancelled_at is not None
