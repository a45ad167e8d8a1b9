"""How jobs end before their time, on a real SLURM, and that nothing is lost by it."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.cluster.cluster import Room, assert_same, is_computing, series
from vmcjob.rundir import Activity, Outcome, Process, RunDir

pytestmark = pytest.mark.timeout(3600)

# Wall times by the way of disturbing. This SLURM warns of the end of one up to half a minute too
# early, so that our own deadline comes first for certain only if there are three minutes.
WAYS = {"requeue": "01:00:00", "kill": "01:00:00", "deadline": "00:03:00"}
FURTHER_WAYS = {"warning": "01:00:00", "wall time": "00:01:00"}  # test_preemption.py has them, too
TRAIN, EVALUATE = 100, 800  # steps, enough to be disturbed in
TOO_SHORT = "the wall time ended before a single step was done; ask for more (-t)"


@dataclass(frozen=True)
class Peace:
    """What a run recorded that was left in peace, and how long it computed."""

    series: dict[str, np.ndarray]
    duration_s: float


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory) -> Peace:
    room = Room(cluster, tmp_path_factory.mktemp("undisturbed"))
    room.run("submit", room.spec(train=TRAIN, evaluate=EVALUATE))
    run = room.only_run()
    room.wait_until(lambda: is_computing(run), "it computes")
    since = time.monotonic()
    room.wait_until(run.read_outcome, "it has ended")
    duration_s = time.monotonic() - since
    room.wait_for(FINISHED=1)
    return Peace(series(run), duration_s)


@pytest.fixture
def ways(request: pytest.FixtureRequest) -> dict[str, str]:
    """The ways of disturbing that are tried; all of them with --full-matrix."""
    return WAYS | (FURTHER_WAYS if request.config.getoption("--full-matrix") else {})


def test_a_run_that_is_disturbed_again_and_again_ends_with_the_same_series(
    room, undisturbed, ways, n_kills
):
    """Bit for bit, whenever it is disturbed; random moments find the state that is not kept.

    Each way has a run of its own, and all go on side by side, for deadlines take minutes to come.
    """
    longest_pause_s = undisturbed.duration_s / (4 * n_kills)
    rooms = {how: replace(room, cwd=room.cwd / how) for how in ways}
    with ThreadPoolExecutor(len(ways)) as pool:
        stories = {
            how: pool.submit(
                disturb_often, room, how, ways[how], max(1, n_kills // 2), longest_pause_s
            )
            for how, room in rooms.items()
        }
    for how, story in stories.items():
        first = story.result()
        run = rooms[how].only_run()
        rooms[how].wait_until(lambda run=run: has_ended(run), f"{how}: the run has ended")
        lengthen_if_too_short(rooms[how], run)
        rooms[how].wait_for(FINISHED=1)
        assert_same(run, undisturbed.series)
        submission = run.read_submission()
        assert submission is not None
        assert first not in (None, submission.worker), f"{how}: nothing was disturbed"
    assert n_stops(rooms["deadline"]) == n_stops(rooms["deadline"], "deadline") > 0


def disturb_often(
    room: Room, how: str, wall_time: str, times: int, longest_pause_s: float
) -> Process | None:
    """Submit a run and disturb it so often at random moments; the first worker that was hit."""
    room.cwd.mkdir()
    # Of jobs that do not say how little memory they need, a node takes one.
    room.run("submit", "--mem=500M", "-t", wall_time, room.spec(train=TRAIN, evaluate=EVALUATE))
    run, chance, worker, first = room.only_run(), random.Random(how), None, None
    for _ in range(times):
        # Some while they begin; the end of the wall time before the first step is another story.
        is_early = how not in ("wall time", "deadline") and chance.random() < 0.3
        pause_s = chance.uniform(0.0, longest_pause_s)
        worker = next_worker(room, run, worker, has_begun if is_early else is_at_work)
        if worker is None:  # we were too slow to disturb it so often
            return first
        first = first or worker
        time.sleep(pause_s)
        with suppress(ProcessLookupError):
            disturb(room, run, worker, how)
    return first


def next_worker(
    room: Room,
    run: RunDir,
    earlier: Process | None,
    is_ready: Callable[[RunDir, Process | None], bool],
) -> Process | None:
    """The worker of the next attempt when it is ready; None if the run has finished."""
    room.wait_until(lambda: is_ready(run, earlier) or has_ended(run), "the next worker is ready")
    if lengthen_if_too_short(room, run):
        return next_worker(room, run, earlier, is_ready)
    outcome, submission = run.read_outcome(), run.read_submission()
    assert outcome is None or outcome.outcome in (Outcome.FINISHED, Outcome.PREEMPTED), outcome
    return submission.worker if submission and not has_ended(run) else None


def has_ended(run: RunDir) -> bool:
    """Whether no further attempt follows."""
    outcome = run.read_outcome()
    return outcome is not None and outcome.outcome is not Outcome.PREEMPTED


def lengthen_if_too_short(room: Room, run: RunDir) -> bool:
    """On a slow machine, a minute may be too short for one step: resume the run with five."""
    outcome = run.read_outcome()
    if outcome is None or outcome.message != TOO_SHORT:
        return False
    room.wait_until(lambda: not room.cluster.job_ids(room.cwd), "the job has left the queue")
    room.run("resume", "--mem=500M", "-t", "00:05:00", "h")
    return True


def has_begun(run: RunDir, earlier: Process | None) -> bool:
    """Whether there is a worker, and not that of before."""
    submission = run.read_submission()
    worker = submission.worker if submission else None
    return worker is not None and worker != earlier and worker.is_alive() is True


def is_at_work(run: RunDir, earlier: Process | None) -> bool:
    """Whether the new worker has done steps."""
    beat, submission = run.read_heartbeat(), run.read_submission()
    if beat is None or submission is None or not has_begun(run, earlier):
        return False
    return beat.process == submission.worker and is_computing(run)


def disturb(room: Room, run: RunDir, worker: Process, how: str) -> None:
    """Interfere with a run's attempt."""
    submission = run.read_submission()
    assert submission is not None
    assert submission.job_id is not None
    match how:
        case "warning":  # as SLURM sends it before a preemption, and before the wall time ends
            tell(room, "scancel", "--signal=URG", submission.job_id)
        case "requeue":
            tell(room, "scontrol", "requeue", submission.job_id)
        case "kill":
            os.kill(worker.pid, signal.SIGKILL)
            room.wait_until(lambda: not room.cluster.job_ids(room.cwd), "the job has ended")
            if room.states() != {"FINISHED": 1}:
                room.wait_for(DEAD=1)
                assert room.status()[0]["message"].startswith("the worker was killed by SIGKILL")
                room.run("resume", "--mem=500M", "@last")
        case "wall time" | "deadline":  # stopped, or a fast machine would have done it before
            n_before = n_stops(room)
            os.kill(worker.pid, signal.SIGSTOP)
            room.wait_until(lambda: n_stops(room) > n_before or not worker.is_alive(), "time is up")
            if how == "deadline":  # there is time enough to look
                assert room.states() == {"STOPPING": 1}
            os.kill(worker.pid, signal.SIGCONT)


def tell(room: Room, *command: str) -> None:
    """Call a program of SLURM, which may refuse: the job may have ended just now."""
    subprocess.run(command, env=room.environment, capture_output=True)


def n_stops(room: Room, reason: str = "") -> int:
    """How often a supervisor asked the worker of the room's run to stop, for this reason."""
    logs = (path.read_text() for path in room.runs.glob(".slurm/*/*_log.err"))
    return sum(text.count(f"{reason}: asking the worker to stop") for text in logs)


def is_evaluating(run: RunDir) -> bool:
    beat = run.read_heartbeat()
    return beat is not None and beat.phase is Activity.EVALUATE and beat.step > 0


def wait_for_cancelled(room: Room, *on_the_way: str) -> None:
    """Until SLURM has ended the job; the run is never said to be anything else on the way there."""
    seen: set[str] = set()

    def has_left() -> bool:
        seen.update(room.states())
        return not room.cluster.job_ids(room.cwd)

    room.wait_until(has_left, "the job has left the queue")
    assert seen <= {*on_the_way, "CANCELLED"}
    assert room.states() == {"CANCELLED": 1}


def test_a_cancelled_job_has_a_checkpoint_does_not_come_back_and_can_be_resumed(room):
    room.run("submit", room.spec(evaluate=100_000))
    run = room.only_run()
    room.wait_until(lambda: is_evaluating(run), "it evaluates")
    assert "is being cancelled" in room.run("cancel", "h")
    wait_for_cancelled(room, "STOPPING")
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
    wait_for_cancelled(room, "RUNNING", "STOPPING")  # by hand, and found out by the supervisor
    submission = run.read_submission()
    assert submission is not None
    assert submission.cancelled_at is not None
