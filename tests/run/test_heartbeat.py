"""The heartbeat's thread."""

import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

from tests.runs import make_run, wait_until
from vmcjob.run.heartbeat import HeartbeatWriter
from vmcjob.rundir import Activity, Heartbeat

TRAINING = Heartbeat(phase=Activity.TRAIN, step=3, n_steps=9, energy=-1.0)


def test_a_heartbeat_is_repeated_with_its_time_until_the_pulse_ends(tmp_path: Path) -> None:
    """XLA may compile for minutes, and a worker of another host is dead when it is silent."""
    run = make_run(tmp_path)

    def time_of_last() -> float:
        last = run.read_heartbeat()
        assert last is not None
        assert (last.step, last.energy, last.phase) == (3, -1.0, Activity.TRAIN)
        return last.time

    with HeartbeatWriter(run) as heartbeat:
        heartbeat.beat(TRAINING)
        wait_until(lambda: time_of_last() > TRAINING.time, "it has been repeated")
        heartbeat.beat(TRAINING)
        first = time_of_last()
        wait_until(lambda: time_of_last() > first, "it is repeated again")
    last = time_of_last()
    time.sleep(3.0)
    assert time_of_last() == last


def test_a_job_on_a_cluster_writes_few_heartbeats(tmp_path: Path) -> None:
    """Steps wait for their turn, the longer the phase goes on; first and last ones do not.

    Catches a write for each block of steps, a short run without a word, and a lost last position.
    """
    run = make_run(tmp_path)

    def step_written_after(activity: Activity, step: int, seconds: float) -> int:
        time_s = TRAINING.time + seconds
        heartbeat.beat(replace(TRAINING, phase=activity, step=step, time=time_s))
        last = run.read_heartbeat()
        assert last is not None
        return last.step

    with HeartbeatWriter(run, pause_s=1000.0) as heartbeat:
        assert step_written_after(Activity.TRAIN, 1, 0.0) == 1
        assert step_written_after(Activity.TRAIN, 2, 1.0) == 2
        assert step_written_after(Activity.TRAIN, 3, 1.1) == 2
        assert step_written_after(Activity.EVALUATE, 4, 1.2) == 4
        assert step_written_after(Activity.EVALUATE, 5, 9000.0) == 5
        assert step_written_after(Activity.EVALUATE, 6, 9900.0) == 5
    last = run.read_heartbeat()
    assert last is not None
    assert last.step == 6


def test_a_clock_that_goes_back_silences_nobody(tmp_path: Path) -> None:
    """The last heartbeat would stay in the future, and a dead run would look alive."""
    run = make_run(tmp_path)
    with HeartbeatWriter(run, pause_s=1000.0) as heartbeat:
        for time_s in (TRAINING.time, TRAINING.time + 9000.0, TRAINING.time + 5000.0):
            heartbeat.beat(replace(TRAINING, time=time_s))
        last = run.read_heartbeat()
    assert last is not None
    assert last.time == TRAINING.time + 5000.0


def test_the_last_word_keeps_its_time(tmp_path: Path) -> None:
    """That of a run that ended long ago, which was only looked at again."""
    run, of_before = make_run(tmp_path), replace(TRAINING, time=1.0)
    with HeartbeatWriter(run) as heartbeat:
        heartbeat.beat(TRAINING)
        heartbeat.end_with(of_before)
        time.sleep(3.0)
        assert run.read_heartbeat() == of_before


def test_a_vanished_run_directory_is_left_to_the_worker_to_complain_about(tmp_path: Path) -> None:
    """The thread must neither die aloud nor bring the directory back."""
    run = make_run(tmp_path)
    with HeartbeatWriter(run) as heartbeat:
        heartbeat.beat(TRAINING)
        shutil.rmtree(run.path)
        time.sleep(3.0)
        assert any(thread.name == "heartbeat" for thread in threading.enumerate())
    assert not run.path.exists()
