"""What squeue and sacct answer about jobs, asked by their ids or by their names."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vmcjob.errors import SchedulerError
from vmcjob.scheduler.slurm import commands

MAX_ARGUMENT = 100_000  # bytes; Linux refuses a single argument of more than 131071
MAX_SKEW_S = 3600.0  # between the clocks of this host and the accounting's
INVALID = "Invalid job id"
"""The words of squeue for a single job that the controller does not know."""
_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
# Jobs of hidden partitions, too, and jobs that ended a moment ago.
_SQUEUE = ("squeue", "--noheader", "--all", "--array", "--states=all")


class Line(NamedTuple):
    """What SLURM says about one job, in its own words."""

    job_id: str
    name: str
    state: str
    start: str  # of a job that waits, when it is expected to
    reason: str = ""


def index_of(job_id: str) -> int | None:
    """The index of an array's element: 3 of 22_3."""
    index = job_id.partition("_")[2]
    return int(index) if index.isdigit() else None


def number_of(job_id: str) -> str:
    """The number that SLURM counts the job by; of an array's element, that of the array."""
    return re.split(r"\D", job_id, maxsplit=1)[0]


def ask_queue(numbers: Sequence[str]) -> list[Line]:
    """The jobs with these numbers, elements one by one; none for a number that SLURM calls invalid.

    SchedulerError if squeue cannot be asked.
    """
    return [
        Line(*columns)
        for columns in _ask_by_number(numbers, "--format=%i|%j|%T|%S|%r", n_columns=5)
    ]


def ask_queue_for_names(names: Iterable[str]) -> list[Line]:
    """The jobs with these names."""
    joined = ",".join(sorted(names))
    which = f"--name={joined}" if len(joined) < MAX_ARGUMENT else "--me"
    text = commands.call(*_SQUEUE, which, "--format=%i|%j|%T|%S|%r")
    return [Line(*columns) for columns in commands.fields(text, 5)]


def ask_for_folders(numbers: Sequence[str]) -> dict[str, str]:
    """The working directory of each job with these numbers."""
    return dict(_ask_by_number(numbers, "--format=%i|%Z", n_columns=2))


def ask_for_ends(numbers: Sequence[str]) -> dict[str, float]:
    """When each job with these numbers has ended, or will at most; in seconds since the epoch."""
    answer = _ask_by_number(numbers, "--format=%i|%e", n_columns=2)
    return {job_id: float(end) for job_id, end in answer if end.isdigit()}


def _ask_by_number(numbers: Sequence[str], form: str, n_columns: int) -> list[list[str]]:
    """The columns of all jobs with these numbers."""
    joined = ",".join(numbers)
    try:
        if len(joined) < MAX_ARGUMENT:
            text = commands.call(*_SQUEUE, f"--jobs={joined}", form)
            return list(commands.fields(text, n_columns))
    except SchedulerError as error:  # a real squeue says so only if it is asked for one job
        if INVALID not in str(error):
            raise
        if len(numbers) == 1:
            return []
    middle = len(numbers) // 2
    halves = numbers[:middle], numbers[middle:]
    return [found for half in halves for found in _ask_by_number(half, form, n_columns)]


def ask_for_cluster() -> str | None:
    """The name of the cluster that answers; None if it does not say."""
    try:
        found = _CLUSTER.search(commands.call("scontrol", "show", "config"))
    except SchedulerError:
        return None
    return found[1] if found else None


def ask_accounting(which: str, since: float) -> list[Line]:
    """The jobs that the accounting remembers; none where there is no accounting.

    Args:
        which: an option of sacct, --jobs or --name.
        since: when the first of them was submitted, in seconds since the epoch.
    """
    columns = "--format=JobID,JobName,State,Start"
    # sacct reads the seconds since the epoch only in this form.
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - MAX_SKEW_S))
    selected = [which] if len(which) < MAX_ARGUMENT else []
    command = ["sacct", "-n", "-P", "-X", *selected, f"--starttime={start}", columns]
    try:
        done = commands.start(command)
    except SchedulerError:  # sites without accounting need not have sacct
        return []
    if done.returncode != 0:
        return []
    return [
        Line(job_id, *columns)
        for job_ids, *columns in commands.fields(done.stdout, 4)
        for job_id in _elements(job_ids)
    ]


def _elements(job_id: str) -> Iterator[str]:
    """The elements of an array one by one: accounting has those that never began as 22_[4-6,9].

    Its own option to do so is not in every release of SLURM.
    """
    array, _, indices = job_id.partition("_")
    if not indices.startswith("["):
        yield job_id
        return
    for part in indices.strip("[]").partition("%")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            for index in range(int(first), int(last or first) + 1):
                yield f"{array}_{index}"
