"""Runs that lose their place on a real SLURM, by both ways of telling them, and come back."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.cluster.cluster import TESTBED, Room, is_told_to_stop, n_starts

pytestmark = pytest.mark.timeout(3600)

LOST = "its job does not come back, vmcjob resume goes on"
# Where a run is, by what SLURM does to it there: requeue it after half a minute or at once, end it
# at once or after half a minute; the last two must not be requeued, and one of them has a profile
# with `auto_resume`.
PARTITIONS = {
    "grace": "scavenge",
    "for good": "scavenge-end",
    "by itself": "scavenge-cancel",
}
FURTHER_PARTITIONS = {
    "at once": "scavenge-now",
    "end": "scavenge-cancel",
    "end in time": "scavenge-end",
}
PROFILES = {"by itself": "auto_resume = true", "early": 'setup = ["sleep 5"]'}


@pytest.fixture
def preemption(cluster, request) -> Iterator[str]:
    """What a job with a grace time gets first: the signal that it asked for, or just SIGTERM."""
    subprocess.run([TESTBED, "preemption-by", request.param], check=True)
    yield request.param
    subprocess.run([TESTBED, "preemption-by", "warning"], check=True)


def first_of(first: str, other: str) -> pytest.MarkDecorator:
    """What a job gets, in one test the one and in the other the other: all with --full-matrix."""
    values = [first, pytest.param(other, marks=pytest.mark.full_matrix)]
    return pytest.mark.parametrize("preemption", values, indirect=True)


def submit(room: Room, name: str, *options: str, evaluate: int = 1_000) -> Room:
    """A room of its own with a run that computes for a while."""
    own = replace(room, cwd=room.cwd / name)
    own.cwd.mkdir()
    if profile := PROFILES.get(name):
        (own.cwd / "site.toml").write_text(f"[slurm]\n{profile}\n")
        own = replace(own, extra={"VMCJOB_SITE": "site.toml"})
    # Of jobs that do not say how little memory they need, a node takes one.
    own.run("submit", "--mem=500M", *options, own.spec(train=5, evaluate=evaluate))
    return own


@pytest.fixture
def partitions(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where runs are preempted; everywhere with --full-matrix."""
    is_full = request.config.getoption("--full-matrix")
    return PARTITIONS | (FURTHER_PARTITIONS if is_full else {})


@first_of("termination", "warning")
def test_who_is_preempted_comes_back_or_says_that_it_does_not(room, partitions, preemption):
    rooms = {}
    for how, name in partitions.items():
        # What is submitted again by its own job would be held once more.
        held = () if how == "by itself" else ("--extra", "hold")
        rooms[how] = submit(room, how, *held, "-p", name, evaluate=2_000)
    for how, own in rooms.items():
        (job_id,) = room.cluster.job_ids(own.cwd)
        if how in ("for good", "by itself"):
            room.cluster.call("scontrol", "update", f"JobId={job_id}", "Requeue=0")
        if how != "by itself":
            room.cluster.call("scontrol", "release", job_id)
    workers = pause(*rooms.values())  # or the first would be through by then
    # Of this one nobody listens yet; the half minute that it is given is not its wall time.
    early = submit(room, "early", "-p", "scavenge-end", evaluate=40)
    early.wait_for(RUNNING=1)
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    job_id = come_first(room)
    room.wait_until(lambda: is_over(room, job_id), "what came first has been done")
    early.wait_for(FINISHED=1)
    lost = rooms.pop("for good")
    lost.wait_for(PREEMPTED=1)
    assert lost.status()[0]["message"].endswith(LOST)
    lost.run("submit", "--mem=500M", "-p", PARTITIONS["for good"], "h.toml")  # preempts nobody
    for own in (lost, *rooms.values()):
        own.wait_for(FINISHED=1)
        assert n_starts(own.only_run()) == 2


def come_first(room: Room) -> str:
    """A job that wants both nodes and may have them; its id."""
    job = ("sbatch", "--parsable", "-p", "gpu", "-N2", "--exclusive", "-t1", "--wrap=sleep 2")
    return room.cluster.call(*job, f"--chdir={room.cwd}").strip()


def is_over(room: Room, job_id: str) -> bool:
    """Whether it has left the queue."""
    return job_id not in room.cluster.call("squeue", "--noheader", "--format=%i").split()


@pytest.mark.full_matrix  # one that is away, below, forgets as much
@first_of("warning", "termination")
def test_a_controller_that_is_killed_in_the_grace_time(room, preemption):
    """It has forgotten that it preempts the job, which comes back all the same."""
    own = submit(room, "grace", "-p", "scavenge")
    (worker,) = pause(own)  # or it would have stopped while there is somebody to ask
    job_id = come_first(room)
    room.wait_until(lambda: was_told(own), "it is told to stop")
    run = own.only_run()
    os.kill(room.cluster.pid("slurmctld"), signal.SIGKILL)
    try:
        with suppress(ProcessLookupError):  # SLURM has it go on too, before it tells it to stop
            os.kill(worker, signal.SIGCONT)
        room.wait_until(run.read_outcome, "it has stopped")
        time.sleep(3)  # in which its supervisor asks, and nobody answers
    finally:
        room.cluster.start("slurmctld")
    room.wait_until(lambda: not is_supervised(own), "its first attempt is over")
    come_back(own)
    own.wait_for(FINISHED=1)
    assert n_starts(run) == 2
    # If it died just as it gave the nodes to what came first, it did so twice, and drained one.
    room.cluster.call("scancel", job_id)
    room.cluster.undrain()


def test_a_controller_that_is_away_when_the_time_is_up(room):
    """Nobody takes a job back then, until there is somebody again; what needs nobody goes on.

    Of one run the wall time ends meanwhile, one was warned just before, one has enough to do.
    """
    room.cluster.wait_until_idle()
    other = submit(room, "other")
    busy = pause(other)  # it has enough to do, once the controller is away
    # What is left for the second minute is little, so that it is enough on a slow machine too.
    short = submit(room, "short", "-t", "00:01:00", evaluate=400)
    warned = submit(room, "warned")
    held = pause(short, warned)  # or a fast machine would be through
    (job_id,) = room.cluster.job_ids(warned.cwd)
    room.cluster.call("scancel", "--signal=URG", job_id)
    room.wait_until(lambda: was_told(warned), "it is warned")
    os.kill(room.cluster.pid("slurmctld"), signal.SIGTERM)
    for worker in (*busy, held[1]):
        os.kill(worker, signal.SIGCONT)
    room.wait_until(lambda: was_told(short), "the time is up")
    os.kill(held[0], signal.SIGCONT)
    submission = short.only_run().read_submission()
    assert submission is not None
    assert submission.started_at is not None
    time.sleep(max(0.0, submission.started_at + 62 - time.time()))
    room.cluster.start("slurmctld")
    for own, starts in ((short, 2), (warned, 2), (other, 1)):
        own.wait_for(FINISHED=1)
        assert n_starts(own.only_run()) == starts


def pause(*rooms: Room) -> list[int]:
    """Stop the worker of each room as soon as it computes; their pids."""
    runs = [own.only_run() for own in rooms]
    held = rooms[0].hold(*runs)
    return [held[run] for run in runs]


def is_supervised(room: Room) -> bool:
    """Whether the supervisor of the room's latest attempt is at work, seen from its node."""
    submission = room.only_run().read_submission()
    assert submission is not None
    assert submission.launcher is not None
    return bool(submission.launcher.is_alive())


def come_back(room: Room) -> None:
    """Have SLURM ask its nodes what they still do, until a worker begins once more.

    A controller that has forgotten the preemption takes the job to be running until its node says
    otherwise, for which it is asked every half an hour; a node that is asked while the last
    processes of a job end says that it runs.
    """
    run, asked_at = room.only_run(), 0.0

    def begins_again() -> bool:
        nonlocal asked_at
        if n_starts(run) < 2 and time.monotonic() - asked_at > 20:
            room.cluster.call("scontrol", "reconfigure")
            asked_at = time.monotonic()
        return n_starts(run) == 2

    room.wait_until(begins_again, "a worker begins once more")


def was_told(room: Room) -> bool:
    """Whether the room's worker was asked to stop."""
    return is_told_to_stop(room.only_run())
