"""What SLURM says about runs: one squeue call and, where there are questions left, one of sacct."""

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from vmcjob.errors import SchedulerError
from vmcjob.rundir import RunDir, Submission
from vmcjob.scheduler.slurm import commands, jobfiles
from vmcjob.status import JobState, Queue, Stage

Key = tuple[str, int | None]
"""Job name and index in its array: known before the job has an id."""

MAX_ARGUMENT = 100_000  # bytes; Linux refuses a single argument of more than 131071
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"}
ACTIVE = {"RUNNING", "STAGE_OUT", "SIGNALING", "RESIZING"}
SUSPENDED = {"SUSPENDED", "STOPPED"}
MAX_SKEW_S = 3600.0  # between the clocks of this host and the accounting's
_PRIVATE = re.compile(r"PrivateData\s*=")
BEGIN_TIME = "BeginTime"  # of --begin, and of a job that is requeued
NEVER_SATISFIED = "DependencyNeverSatisfied"
PAUSE = "suspended by SLURM; goes on when it is resumed"
REASONS: Mapping[str, str] = {
    "None": "waits for the scheduler to look at it",
    "Priority": "others come first",
    "Resources": "waits for free nodes",
    "JobArrayTaskLimit": "waits for its turn in the array",
    "Dependency": "waits for another job",
    NEVER_SATISFIED: "waits for a job that has failed; cancel it",
    "JobHeldUser": "held by its owner; scontrol release lets it go",
    "job requeued in held state": "requeued and held; scontrol release lets it go",
    "JobHeldAdmin": "held by an administrator",
    "PartitionTimeLimit": "asks for more time than the partition allows; cancel it",
    "MaxMemPerLimit": "asks for more memory than the partition allows; cancel it",
    "PartitionNodeLimit": "asks for more nodes than the partition allows; cancel it",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is closed",
    "ReqNodeNotAvail": "its nodes are down or reserved",
    "Nodes required for job are DOWN": "its nodes are down, drained or kept for others",
    "Reservation": "waits for its reservation",
    "Licenses": "waits for a licence",
    "launch failed requeued held": "could not be launched and is held; ask an administrator",
}
ENDS: Mapping[str, str] = {  # those that SLURM knows more about than the run does
    "TIMEOUT": "the wall time ended before the worker had stopped",
    "NODE_FAIL": "the node failed",
    "OUT_OF_MEMORY": "out of memory; ask for more (--mem)",
    "PREEMPTED": "preempted, and not requeued",
    "BOOT_FAIL": "the node did not boot",
    "DEADLINE": "its deadline passed",
}


class _Line(NamedTuple):
    """What SLURM says about one job, in its own words."""

    job_id: str
    state: str
    start: str  # of a job that waits, when it is expected to
    reason: str = ""


def look(asked: Mapping[RunDir, Submission]) -> Queue:
    """What SLURM knows about the jobs of runs; those that it has forgotten have ended.

    SchedulerError if it cannot be asked. On a machine without SLURM nothing is known, nor of jobs
    of others where it shows everybody only their own.
    """
    if not asked or shutil.which("squeue") is None:
        return {}
    names = sorted({s.job_name for s in asked.values() if s.job_name})
    lines = _latest(_squeue(names))
    begun = {_key(s) for run, s in asked.items() if _comes_back(run, s, lines.get(_key(s)))}
    states = {key: _state_of(line, key in begun) for key, line in lines.items()}
    open_ones = {run: s for run, s in asked.items() if run.read_end(s) is None}
    lost = [s for s in open_ones.values() if _key(s) not in states]
    if lost:
        states |= dict(_sacct(lost))
    hidden = _hidden(run for run, s in open_ones.items() if _key(s) not in states)
    return {
        run.path: states.get(_key(s)) or _forgotten(run, s)
        for run, s in asked.items()
        if run not in hidden
    }


def _comes_back(run: RunDir, submission: Submission, line: _Line | None) -> bool:
    """Whether a job that waits for its time has begun before, be it without a word of ours."""
    if line is None or not line.reason.startswith(BEGIN_TIME):
        return False
    return submission.started_at is not None or jobfiles.has_logs(run)


def explain(reason: str, start: float | None = None, *, has_begun: bool = False) -> str:
    """Why a job waits, in plain words; SLURM's own word where there are none.

    Args:
        reason: SLURM's word.
        start: when SLURM expects to start it, in seconds since the epoch.
        has_begun: whether it has been started before, and waits to be started again.
    """
    word = _word(reason)
    if word == BEGIN_TIME:
        when = time.strftime("at %Y-%m-%d %H:%M:%S", time.localtime(start)) if start else "later"
        return f"requeued; starts again {when}" if has_begun else f"starts {when} at the earliest"
    if word not in REASONS and word.startswith(("QOS", "Assoc", "Max")):
        return f"at a limit of the account or its quality of service ({word})"
    return REASONS.get(word, f"waits: {word}")


def _word(reason: str) -> str:
    """The first of the reasons that SLURM gives."""
    return reason.strip("()").split(",")[0]


def _hidden(lost: Iterable[RunDir]) -> set[RunDir]:
    """Those of other users, where SLURM shows everybody only their own jobs (PrivateData)."""
    foreign = {run for run in lost if _is_foreign(run)}
    if not foreign:
        return foreign
    shown = commands.call("scontrol", "show", "config")
    private = (line.partition("=")[2] for line in shown.splitlines() if _PRIVATE.match(line))
    return foreign if "jobs" in re.split(r"\W+", " ".join(private)) else set()


def _is_foreign(run: RunDir) -> bool:
    """Whether somebody else has made or submitted the run."""
    with suppress(OSError):  # removed meanwhile
        return {p.stat().st_uid for p in (run.path, run.submission_path)} != {os.geteuid()}
    return False


def _forgotten(run: RunDir, submission: Submission) -> JobState:
    """A job that nobody knows any more: over, and if it has left no trace, before it began."""
    has_begun = submission.started_at is not None or jobfiles.has_logs(run)
    return JobState(Stage.ENDED, is_cancelled=submission.job_id is not None and not has_begun)


def _key(submission: Submission) -> Key:
    return submission.job_name or "", submission.array_index


def _squeue(names: Sequence[str]) -> Iterator[tuple[Key, _Line]]:
    """All jobs of these names that SLURM still has, also those that ended a moment ago."""
    joined = ",".join(names)
    which = f"--name={joined}" if len(joined) < MAX_ARGUMENT else "--me"
    text = commands.call(
        "squeue", "--noheader", "--array", "--states=all", which, "--format=%i|%j|%T|%S|%r"
    )
    for job_id, name, state, start, reason in commands.fields(text, 5):
        yield (name, _index(job_id)), _Line(job_id, state, start, reason)


def _latest(lines: Iterable[tuple[Key, _Line]]) -> dict[Key, _Line]:
    """Of jobs with one name, the last: a preempted job may have submitted itself once more."""
    found: dict[Key, _Line] = {}
    for key, line in lines:
        if key not in found or _number(line.job_id) > _number(found[key].job_id):
            found[key] = line
    return found


def _number(job_id: str) -> int:
    """What SLURM counts jobs by; of an array's element, that of the array."""
    return int(re.split(r"\D", job_id, maxsplit=1)[0])


def _sacct(lost: Sequence[Submission]) -> Iterable[tuple[Key, JobState]]:
    """What the accounting remembers; nothing where there is none."""
    names = ",".join(sorted({s.job_name for s in lost if s.job_name}))
    since = min(s.submitted_at for s in lost) - MAX_SKEW_S
    columns = "--format=JobID,JobName,State,Start"
    which = [f"--name={names}"] if len(names) < MAX_ARGUMENT else []
    # sacct reads the seconds since the epoch only in this form.
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    try:
        done = commands.start(["sacct", "-n", "-P", "-X", *which, f"--starttime={start}", columns])
    except SchedulerError:  # sites without accounting need not have sacct
        return
    if done.returncode != 0:
        return
    lines = (
        ((name, _index(job_id)), _Line(job_id, state, started))
        for job_ids, name, state, started in commands.fields(done.stdout, 4)
        for job_id in _elements(job_ids)
    )
    for key, line in _latest(lines).items():
        state = _state_of(line)
        # What the queue does not have is over, also where the accounting has missed its end.
        yield key, state if state.stage is Stage.ENDED else JobState(Stage.ENDED, line.job_id)


def _state_of(line: _Line, has_begun: bool = False) -> JobState:
    word = line.state.split()[0]  # accounting writes "CANCELLED by 1000"
    start = float(line.start) if line.start.isdigit() else None
    if word in WAITING:
        words = explain(line.reason, start, has_begun=has_begun)
        return JobState(
            Stage.WAITING, line.job_id, words, is_hopeless=_word(line.reason) == NEVER_SATISFIED
        )
    if word in SUSPENDED:
        return JobState(Stage.ACTIVE, line.job_id, PAUSE, started_at=start, is_suspended=True)
    if word == "COMPLETING":  # of one that comes back, the start is that of its next attempt
        return JobState(Stage.ACTIVE, line.job_id, is_ending=True)
    if word in ACTIVE:
        return JobState(Stage.ACTIVE, line.job_id, started_at=start)
    is_cancelled = word == "CANCELLED"
    return JobState(Stage.ENDED, line.job_id, ENDS.get(word, ""), is_cancelled, start)


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


def _index(job_id: str) -> int | None:
    """The index of an array's element: 3 of 22_3."""
    index = job_id.partition("_")[2]
    return int(index) if index.isdigit() else None
