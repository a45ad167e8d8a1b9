"""What a cluster says to jobs before it is given any: whether, how many of them, and when."""

import re
from collections.abc import Sequence
from dataclasses import replace

from vmcjob.errors import SchedulerError, VmcJobError
from vmcjob.scheduler.contract import Answer
from vmcjob.scheduler.slurm import commands
from vmcjob.scheduler.slurm.accounting import read_wall_limits
from vmcjob.scheduler.slurm.arrays import Array
from vmcjob.scheduler.slurm.maintenance import describe_maintenance
from vmcjob.scheduler.slurm.nodes import is_only_away
from vmcjob.scheduler.slurm.partitions import Partition, list_partitions, require_fit
from vmcjob.scheduler.slurm.patience import ask_patiently

SYSTEM = "SLURM"
_LIMIT = re.compile(r"\b(?:Assoc|QOS)\w*Submit\w*")
"""Names of the limits of how many jobs an account, a user or a quality of service may submit."""
RESTARTED = (
    ", though no job of yours is in the queue: others may use up the limit, or slurmctld has just "
    "restarted and counts wrongly for a moment"
)
_VAGUE_LIMIT = "job submit limit"  # and others, says SLURM, when it names none
_START = re.compile(r"to start at (?P<time>\S+) .*?on nodes? (?P<nodes>\S+)")
_PARTITION = re.compile(r"in partition (\S+)")


def preflight(arrays: Sequence[Array]) -> list[Answer]:
    """What the cluster says to each of them, refusals included; SchedulerError without a cluster.

    Each is judged as if it came alone.
    """
    partitions = _partitions() if arrays else []
    limits = read_wall_limits() if arrays else None
    answers: list[Answer] = []
    for array in arrays:
        try:
            if limits is not None:
                limits.require(array.options, partitions)
            answers.append(ask(array, partitions))
        except VmcJobError as error:
            answers.append(Answer(array, SYSTEM, error=error))
    return answers


def ask(array: Array, partitions: Sequence[Partition]) -> Answer:
    """How many of its jobs SLURM takes now; an error of what it would never start."""
    if array.image is not None:
        array.image.digest()
    said, n_jobs, limit = _test(array), array.n_jobs, ""
    if isinstance(said, SchedulerError) and is_only_away(array.options, said):
        said = ""  # nobody knows when they are back
    if isinstance(said, SchedulerError):
        n_jobs, limit = _largest_part(array, said)
        said = _test(array.first(n_jobs)) if n_jobs else ""
    if isinstance(said, SchedulerError):
        raise said
    require_fit(array.options, partitions)
    start, partition = _START.search(said), _PARTITION.search(said)
    when = start["time"] if start else ""
    starts_at = float(when) if when.isdecimal() else None
    return Answer(
        array,
        SYSTEM,
        n_jobs,
        limit,
        starts_at=starts_at,
        note=describe_maintenance(array.options.wall_time_s, starts_at),
        nodes=start["nodes"] if start else "",
        partition=partition[1] if partition else "",
    )


def _partitions() -> list[Partition]:
    try:
        return ask_patiently(list_partitions)
    except SchedulerError as error:
        raise SchedulerError(f"no cluster answers; with --local, runs stay here: {error}") from None


def _test(array: Array) -> SchedulerError | str:
    """Why SLURM would refuse the array; where and when it would start it, if it would."""
    script = replace(array, after=None, waits_for=()).script  # what it waits for is not there yet
    try:
        return ask_patiently(lambda: _test_script(script))
    except SchedulerError as error:
        return error


def _test_script(script: str) -> str:
    """SLURM's words on where and when a script would start; SchedulerError if it would not."""
    done = commands.start(["sbatch", "--test-only"], script)
    if done.returncode != 0:
        raise SchedulerError(f"sbatch: {commands.words(done.stderr) or f'exit {done.returncode}'}")
    return done.stderr


def _largest_part(array: Array, refusal: SchedulerError) -> tuple[int, str]:
    """How many jobs of a refused array SLURM takes, and the limit that it names.

    The refusal itself is raised if it is not about their number. All limits there may be, of
    accounts, users and qualities of service, and what they have submitted before, are in
    SLURM's answers: so we try, and need not know them.
    """
    found = _LIMIT.search(str(refusal))
    if not found and _VAGUE_LIMIT not in str(refusal):
        raise refusal
    taken, refused = 0, array.n_jobs
    while refused - taken > 1:
        middle = (taken + refused) // 2 if taken else 1
        if isinstance(_test(array.first(middle)), str):
            taken = middle
        else:
            refused = middle
    if not taken and not found:  # as vague of a single job, it is about something else
        raise refusal
    limit = found[0] if found else ""
    return taken, limit if taken or _has_jobs() else f"{limit}{RESTARTED}"


def _has_jobs() -> bool:
    """Whether this user has jobs in the queue, as far as squeue says."""
    try:
        return bool(commands.call("squeue", "--noheader", "--me", "--format=%i").strip())
    except SchedulerError:
        return True
