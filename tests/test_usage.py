"""Device hours of a run, from its history alone."""

from dataclasses import replace

import pytest

from vmcjob.rundir import Heartbeat, Phase
from vmcjob.spec import Resources
from vmcjob.usage import Work, usage, work


def line(event: str, time: object, **details: object) -> dict[str, object]:
    return {"event": event, "time": time, "host": "n1", "pid": 7} | details


def beat(time: float, pid: int = 7) -> Heartbeat:
    return Heartbeat(phase=Phase.TRAIN, step=1, n_steps=2, pid=pid, host="n1", time=time)


START, END = line("start", 100.0), line("end", 160.0, outcome="PREEMPTED")
AGAIN = line("start", 1000.0, pid=8)


@pytest.mark.parametrize(
    ("attempts", "last", "expected"),
    [
        ([], None, Work()),
        ([START, END], None, Work(60.0, 1)),
        ([START, line("stop", 150.0), END, AGAIN, line("end", 1030.0)], None, Work(90.0, 2)),
        ([START, line("lost", 140.0, worker_pid=6)], None, Work(40.0, 1)),
        ([START, line("lost", 120.0, rank=1), END], None, Work(60.0, 1)),  # one loss, counted once
        ([START], beat(130.0), Work(30.0, 1)),  # at work, or killed: until it was last heard of
        ([START], beat(130.0, pid=9), Work(0.0, 1, is_complete=False)),  # of another worker
        ([START, AGAIN, line("end", 1030.0)], None, Work(30.0, 2, is_complete=False)),
        ([START, line("end", 90.0)], None, Work(0.0, 1)),  # clocks of hosts differ
        ([line("start", "noon"), line("end", 10**400), line("end", True)], None, Work()),
    ],
)
def test_work_lasts_from_each_start_to_its_end(attempts, last, expected):
    """The waiting between attempts is no work; an end that nobody saw makes it a lower bound."""
    assert work(attempts, last) == expected


@pytest.mark.parametrize(
    ("resources", "is_job", "devices"),
    [
        (Resources(), True, 1.0),
        (Resources(gpus=0), True, 1.0),  # of a machine without a GPU the unit is the machine
        (Resources(gpus=0, nodes=3), True, 3.0),
        (Resources(gpus=4, nodes=2), True, 8.0),
        (Resources(gpus=1, runs_per_job=4), True, 0.25),  # runs of a job add up to its GPUs
        (Resources(gpus=1, runs_per_job=4), False, 1.0),  # on this machine they take turns
    ],
)
def test_an_hour_of_work_costs_an_hour_of_each_device(resources, is_job, devices):
    found = usage(Work(3600.0, 1), resources, is_job=is_job)
    assert (found.devices, found.used_hours) == (devices, devices)


def test_what_is_left_and_what_was_asked_for_are_hours_of_all_devices():
    """No time left is known, or no wall time asked for: nothing is said, and not zero."""
    resources = Resources(gpus=2, time="00:30:00")
    found = usage(Work(3600.0, 1), resources, is_job=True, eta_s=1800.0)
    assert (found.forecast_hours, found.asked_hours) == (3.0, 1.0)
    found = usage(Work(3600.0, 1), replace(resources, time=None), is_job=True)
    assert (found.forecast_hours, found.asked_hours) == (None, None)
