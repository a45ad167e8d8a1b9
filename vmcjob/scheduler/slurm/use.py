"""Resources that jobs have used, as SLURM's accounting knows them."""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime

from vmcjob.errors import SchedulerError
from vmcjob.rundir import RunDir, Submission
from vmcjob.runs.usage import Spent
from vmcjob.scheduler.slurm import commands
from vmcjob.scheduler.slurm.inquiry import MAX_ARGUMENT, MAX_SKEW_S, number_of

COLUMNS = ("ElapsedRaw", "TotalCPU", "MaxRSS", "AllocCPUS", "Submit", "Start")
MB_PER_UNIT = {"": 1 / 2**20, "K": 1 / 2**10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)")
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")  # [[days-]hours:]min:s
_STEP = re.compile(r"(\d+(?:_\d+)?)(?:\.\w+)?")


def ask_for_use(submissions: Mapping[RunDir, Submission]) -> dict[RunDir, Spent]:
    """What the last attempt of each run's job has used; nothing where there is no accounting.

    The memory is the largest that SLURM saw when it looked, by default every 30 seconds. Runs that
    share a job are left out: the account is the job's.
    """
    asked = {run: s.job_id for run, s in submissions.items() if s.job_id and s.place is None}
    if not asked:
        return {}
    since = min(submissions[run].submitted_at for run in asked)
    rows = _ask({number_of(job_id) for job_id in asked.values()}, since)
    found = {run: _spent(rows[job_id]) for run, job_id in asked.items() if job_id in rows}
    return {run: use for run, use in found.items() if use.seconds is not None}


def _ask(numbers: Iterable[str], since: float) -> dict[str, list[list[str]]]:
    """The lines of sacct by job: the first is about the whole job, the others about its steps."""
    which = f"--jobs={','.join(sorted(numbers, key=int))}"
    selected = [which] if len(which) < MAX_ARGUMENT else []
    # sacct reads the seconds since the epoch only in this form.
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - MAX_SKEW_S))
    form = f"--format=JobID,{','.join(COLUMNS)}"
    try:
        done = commands.start(["sacct", "-n", "-P", *selected, f"--starttime={start}", form])
    except SchedulerError:  # sites without accounting need not have sacct
        return {}
    found: dict[str, list[list[str]]] = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        step, *values = line.split("|")
        if len(values) == len(COLUMNS) and (match := _STEP.fullmatch(step)):
            found.setdefault(match[1], []).append(values)
    return found


def _spent(lines: list[list[str]]) -> Spent:
    """The use by one job."""
    elapsed, cpu, _, cpus, submitted, started = lines[0]
    seconds = float(elapsed) if elapsed.isdecimal() and int(elapsed) else None
    cpu_s = _duration(cpu)
    sizes = [size for line in lines if (size := _megabytes(line[2])) is not None]
    began, asked = _moment(started), _moment(submitted)
    return Spent(
        peak_mb=max(sizes, default=None),
        busy_cpus=cpu_s / seconds if cpu_s and seconds else None,  # 0 while the job runs
        cpus=float(cpus) if cpus.isdecimal() and int(cpus) else None,
        seconds=seconds,
        waited_s=None if began is None or asked is None else max(0.0, began - asked),
    )


def _duration(text: str) -> float | None:
    """Seconds of a duration as sacct writes it."""
    if (match := _DURATION.fullmatch(text)) is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _megabytes(text: str) -> float | None:
    match = _SIZE.fullmatch(text)
    return float(match[1]) * MB_PER_UNIT[match[2]] if match else None


def _moment(text: str) -> float | None:
    """Seconds since the epoch; None for a job that has not begun."""
    with suppress(ValueError):
        return datetime.fromisoformat(text).timestamp()
    return None
