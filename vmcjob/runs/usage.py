"""What a run has cost so far and is to cost, in device hours, from its history alone.

A device is a GPU that was asked for; of a run without GPUs it is its node. A GPU that runs share is
counted in parts, so that the runs of a job add up to what the job is charged for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from math import inf

from vmcjob.rundir import Heartbeat, Submission
from vmcjob.spec import Resources

S_PER_HOUR = 3600
MAX_TIME_S = 2.0**40  # since the epoch: beyond all calendars, and NaN is no less


@dataclass(frozen=True)
class Work:
    """How long workers have been at work on a run, all its attempts together."""

    seconds: float = 0.0
    n_attempts: int = 0
    is_complete: bool = True  # False: one was killed, and nobody saw when


@dataclass(frozen=True)
class Usage:
    """Device hours of one run; None where nothing says."""

    devices: float
    attempts: int
    used_hours: float
    is_complete: bool  # False: what was used is at least that
    forecast_hours: float | None  # of the whole run, while it is at work
    asked_hours: float | None  # of one attempt that takes its whole wall time


def work(attempts: Iterable[Mapping[str, object]], beat: Heartbeat | None = None) -> Work:
    """Add up a history: each attempt from its start to its end, or to the last sign of life.

    The heartbeat is that of the last worker only. Clocks of hosts differ: no attempt is negative.
    """
    seconds, n_attempts, is_complete = 0.0, 0, True
    start: float | None = None  # of the attempt that has not ended yet
    who: tuple[object, object] = (None, None)
    for line in attempts:
        event, time = line.get("event"), _time(line)
        if time is None:
            continue
        if event == "start":
            is_complete = is_complete and start is None
            start, who, n_attempts = time, (line.get("host"), line.get("pid")), n_attempts + 1
        elif start is not None and _is_end(line):
            seconds, start = seconds + max(0.0, time - start), None
    if start is not None:
        if beat is not None and (beat.host, beat.pid) == who:
            seconds += max(0.0, beat.time - start)
        else:
            is_complete = False
    return Work(seconds, n_attempts, is_complete)


def usage(done: Work, resources: Resources, *, is_job: bool, eta_s: float | None = None) -> Usage:
    """Turn seconds of work into hours of the devices that were asked for."""
    devices = n_devices(resources, is_job=is_job)
    used_hours = devices * done.seconds / S_PER_HOUR
    asked_s = resources.time_s
    return Usage(
        devices=devices,
        attempts=done.n_attempts,
        used_hours=used_hours,
        is_complete=done.is_complete,
        forecast_hours=None if eta_s is None else used_hours + devices * eta_s / S_PER_HOUR,
        asked_hours=None if asked_s in (None, inf) else devices * asked_s / S_PER_HOUR,
    )


@dataclass(frozen=True)
class Spent:
    """Resources that the attempts of a run have used, the most of any; None where unknown."""

    peak_mb: float | None = None  # host memory
    busy_cpus: float | None = None  # on average
    cpus: float | None = None  # that the worker could use
    seconds: float | None = None  # from start to end
    waited_s: float | None = None  # from the last submission to its first start
    gpus: float | None = None  # that the worker computed on
    gpu_busy: float | None = None  # share of time; by this and all other processes on the GPUs
    gpu_peak_mb: float | None = None  # memory of one GPU, by this process alone
    gpu_mb: float | None = None  # memory of one GPU in all


NOTED = ("peak_mb", "cpus", "gpus", "gpu_busy", "gpu_peak_mb", "gpu_mb")  # by workers themselves


def spent(attempts: Iterable[Mapping[str, object]], submission: Submission | None) -> Spent:
    """The largest use by any attempt whose worker noted its use; earlier releases noted none."""
    found, start, starts = Spent(), None, []
    for line in attempts:
        time = _time(line)
        if line.get("event") == "start" and time is not None:
            start = time
            starts.append(time)
        if line.get("event") != "end" or time is None or start is None:
            continue
        seconds, start = max(0.0, time - start), None
        cpu_s = _number(line.get("cpu_s"))
        busy = None if cpu_s is None or not seconds else cpu_s / seconds
        noted = {key: _number(line.get(key)) for key in NOTED}
        found = most([found, Spent(busy_cpus=busy, seconds=seconds, **noted)])
    if submission is None or submission.started_at is None:
        return found
    # A requeued job keeps its submission, so the first of its starts ended the wait.
    began = [time for time in starts if time >= submission.submitted_at]
    waited_s = min([*began, submission.started_at]) - submission.submitted_at
    return replace(found, waited_s=max(0.0, waited_s))


def most(several: Iterable[Spent]) -> Spent:
    """The largest of each value that any of them knows."""
    rows = list(several)
    return Spent(
        **{
            item.name: reduce(_larger, (getattr(row, item.name) for row in rows), None)
            for item in fields(Spent)
        }
    )


def _larger(before: float | None, now: float | None) -> float | None:
    """The larger of two numbers; either may be unknown."""
    return max((value for value in (before, now) if value is not None), default=None)


def _number(value: object) -> float | None:
    """A finite number that is not negative, None for all else that may stand in a file."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < inf else None


def format_hours(hours: float) -> str:
    """Hours with three digits, and all digits before the point: 0.25, 41.7, 2000."""
    return f"{hours:.3g}" if abs(hours) < 999.5 else f"{hours:.0f}"


def n_devices(resources: Resources, *, is_job: bool) -> float:
    """That a run is charged for: GPUs of all its nodes, or these, or its part of what is shared."""
    return resources.nodes * max(1, resources.gpus) / (resources.runs_per_job if is_job else 1)


def _is_end(line: Mapping[str, object]) -> bool:
    """Whether the attempt is over: a lost rank takes the first one with it, which says so."""
    return line.get("event") == "end" or (line.get("event") == "lost" and "rank" not in line)


def _time(line: Mapping[str, object]) -> float | None:
    """When it was, None for a line that a crash or a hand has damaged."""
    time = line.get("time")
    if isinstance(time, bool) or not isinstance(time, int | float):
        return None
    return float(time) if 0 <= time < MAX_TIME_S else None
