"""What SLURM says about the jobs of runs: squeue is asked first, then sacct for what is missing."""

import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from vmcjob.rundir import RunDir, Submission
from vmcjob.runs.status import JobState, Queue, Stage, heard_of_s
from vmcjob.scheduler.slurm import commands, inquiry, jobfiles
from vmcjob.scheduler.slurm.inquiry import Line, index_of, number_of

WAITING = {
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
}  # fmt: skip
ACTIVE = {"RUNNING", "STAGE_OUT", "SIGNALING", "RESIZING"}
SUSPENDED = {"SUSPENDED", "STOPPED"}
_PRIVATE = re.compile(r"PrivateData\s*=")
BEGIN_TIME = "BeginTime"  # of --begin, and of a job that is requeued
NEVER_SATISFIED = "DependencyNeverSatisfied"
PAUSE = "suspended by SLURM; goes on when it is resumed"
MAINTENANCE = (
    "waits for the end of a maintenance, which scontrol show reservation names; a shorter wall "
    "time (-t) may start before it"
)
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
OF_ANOTHER = "job {} is one of cluster {}, and this host asks {}; ask on a host of the former"
NO_TRACE = (
    "SLURM has forgotten its job, which left no trace: it was taken out of the queue, or could not "
    "start; vmcjob resume goes on"
)
ENDS: Mapping[str, str] = {  # with words where SLURM knows more about an end than the run does
    "COMPLETED": "",
    "FAILED": "",
    "CANCELLED": "",
    "TIMEOUT": "the wall time ended before the worker had stopped",
    "NODE_FAIL": "the node failed",
    "OUT_OF_MEMORY": "out of memory; ask for more (--mem)",
    "PREEMPTED": "preempted, and not requeued",
    "BOOT_FAIL": "the node did not boot",
    "DEADLINE": "its deadline passed",
}


def look(asked: Mapping[RunDir, Submission]) -> Queue:
    """What SLURM knows about the jobs of runs, by their recorded ids.

    The name of a job is not its identity, for administrators change names. Only a submission that
    was cut short before it had an id is found by its name.

    SchedulerError if SLURM cannot be asked. On a machine without SLURM nothing is known, and
    nothing of jobs of others where SLURM shows everybody only their own.
    """
    if not asked or shutil.which("squeue") is None:
        return {}
    lines = _ask_queue(asked)
    states = {
        run: _state_of(line, _comes_back(run, asked[run], line)) for run, line in lines.items()
    }
    states |= _with_ends(states)
    states |= _others_jobs({run: s for run, s in asked.items() if run not in states})
    lost = {run: s for run, s in asked.items() if run not in states and run.read_end(s) is None}
    ends = _ask_accounting(lost)
    hidden = _hidden(run for run in lost if run not in ends)
    missing = {
        run.path: _forgotten(run, s, ends.get(run))
        for run, s in asked.items()
        if run not in states and run not in hidden
    }
    return {run.path: state for run, state in states.items()} | missing


def _ask_queue(asked: Mapping[RunDir, Submission]) -> dict[RunDir, Line]:
    """The line of squeue for each run whose job it knows."""
    numbers = _numbers(asked.values())
    lines = _assign(asked, inquiry.ask_queue(numbers) if numbers else [])
    lines = _without_strangers(asked, lines)
    names = {s.job_name for s in asked.values() if s.job_id is None and s.job_name}
    return lines | (_assign_by_name(asked, inquiry.ask_queue_for_names(names)) if names else {})


def _with_ends(states: Mapping[RunDir, JobState]) -> dict[RunDir, JobState]:
    """The ended jobs of runs whose workers were heard of lately, with the times of their ends.

    A node that slurmctld has lost may work on.
    """
    ended = {
        run: state
        for run, state in states.items()
        if state.stage is Stage.ENDED and state.job_id and heard_of_s(run) is not None
    }
    if not ended:
        return {}
    numbers = sorted({number_of(state.job_id or "") for state in ended.values()}, key=int)
    ends = inquiry.ask_for_ends(numbers)
    return {run: replace(s, ended_at=ends.get(s.job_id or "")) for run, s in ended.items()}


def _others_jobs(missing: Mapping[RunDir, Submission]) -> dict[RunDir, JobState]:
    """The jobs that squeue does not know because they are jobs of another cluster.

    Clusters may share home directories, and with them runs.
    """
    ours = inquiry.ask_for_cluster() if any(s.cluster for s in missing.values()) else None
    return {
        run: JobState(Stage.UNKNOWN, s.job_id, OF_ANOTHER.format(s.job_id, s.cluster, ours))
        for run, s in missing.items()
        if ours and s.job_id and s.cluster and s.cluster != ours
    }


def _ask_accounting(lost: Mapping[RunDir, Submission]) -> dict[RunDir, Line]:
    """The line of sacct for each run whose job squeue does not know."""
    if not lost:
        return {}
    since = min(s.submitted_at for s in lost.values())
    found: dict[RunDir, Line] = {}
    if numbers := _numbers(lost.values()):
        found |= _assign(lost, inquiry.ask_accounting(f"--jobs={','.join(numbers)}", since))
    if names := sorted({s.job_name for s in lost.values() if s.job_id is None and s.job_name}):
        answer = inquiry.ask_accounting(f"--name={','.join(names)}", since)
        found |= _assign_by_name(lost, answer)
    return found


def _numbers(submissions: Iterable[Submission]) -> list[str]:
    """The numbers of the jobs that have ids, each once."""
    return sorted({number_of(s.job_id) for s in submissions if s.job_id}, key=int)


def _assign(asked: Mapping[RunDir, Submission], lines: Iterable[Line]) -> dict[RunDir, Line]:
    """The line with each run's recorded id."""
    found = {line.job_id: line for line in lines}
    return {run: found[s.job_id] for run, s in asked.items() if s.job_id and s.job_id in found}


def _assign_by_name(
    asked: Mapping[RunDir, Submission], lines: Iterable[Line]
) -> dict[RunDir, Line]:
    """The line with the name of each run's job that has no id; of several, the last job's.

    A preempted job may have submitted itself once more.
    """
    found = {(line.name, index_of(line.job_id)): line for line in sorted(lines, key=_order)}
    keys = {run: (s.job_name or "", s.array_index) for run, s in asked.items() if not s.job_id}
    return {run: found[key] for run, key in keys.items() if key in found}


def _order(line: Line) -> int:
    return int(number_of(line.job_id))


def _without_strangers(
    asked: Mapping[RunDir, Submission], lines: Mapping[RunDir, Line]
) -> dict[RunDir, Line]:
    """The lines, without those of other jobs that have the same ids.

    SLURM counts from one again when a cluster is set up anew. A job that was only renamed still
    has the folder of its submission, whose name is the job's.
    """
    renamed = {run for run, line in lines.items() if line.name != asked[run].job_name}
    if not renamed:
        return dict(lines)
    folders = inquiry.ask_for_folders(_numbers(asked[run] for run in renamed))
    strange = {
        run
        for run in renamed
        if (folder := folders.get(lines[run].job_id, "")).startswith("/")
        and os.path.basename(folder) != asked[run].job_name
    }
    return {run: line for run, line in lines.items() if run not in strange}


def _comes_back(run: RunDir, submission: Submission, line: Line) -> bool:
    """Whether a job that waits for its time has begun before, even if no worker said so."""
    if not line.reason.startswith(BEGIN_TIME):
        return False
    return _has_begun(run, submission)


def _has_begun(run: RunDir, submission: Submission) -> bool:
    return submission.started_at is not None or jobfiles.has_logs(run)


def explain(reason: str, start: float | None = None, *, has_begun: bool = False) -> str:
    """Why a job waits, in plain words; SLURM's own word where there are none.

    Args:
        reason: SLURM's word.
        start: when SLURM expects to start it, in seconds since the epoch.
        has_begun: whether it has been started before, and waits to be started again.
    """
    if "Reserved for maintenance" in reason:
        return MAINTENANCE
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
    """The runs of other users, if SLURM shows users only their own jobs (PrivateData)."""
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


def _forgotten(run: RunDir, submission: Submission, end: Line | None) -> JobState:
    """A job that squeue, which was asked for all jobs, does not know: over, as far as SLURM says.

    The accounting may know how it ended, and may also have missed the end.
    """
    if end is not None and (state := _state_of(end)).stage is Stage.ENDED:
        return replace(state, is_forgotten=True)
    words = "" if submission.job_id is None or _has_begun(run, submission) else NO_TRACE
    return JobState(Stage.ENDED, end.job_id if end else None, words, is_forgotten=True)


def _state_of(line: Line, has_begun: bool = False) -> JobState:
    """What a line means. A job whose state we do not know waits or runs: it is not over."""
    word = line.state.partition(" ")[0]  # accounting writes "CANCELLED by 1000"
    start = float(line.start) if line.start.isdigit() else None
    if word in SUSPENDED:
        return JobState(Stage.ACTIVE, line.job_id, PAUSE, started_at=start, is_suspended=True)
    if word == "COMPLETING":  # of one that comes back, the start is that of its next attempt
        return JobState(Stage.ACTIVE, line.job_id, is_ending=True)
    if word in ENDS:
        is_cancelled = word == "CANCELLED"
        return JobState(Stage.ENDED, line.job_id, ENDS[word], is_cancelled, start)
    is_unknown = word not in WAITING and word not in ACTIVE
    if word in ACTIVE or (is_unknown and start is not None and start <= time.time()):
        return JobState(Stage.ACTIVE, line.job_id, started_at=start)
    words = explain(line.reason, start, has_begun=has_begun)
    if is_unknown:
        words += f" (SLURM calls its state {word})"
    is_hopeless = _word(line.reason) == NEVER_SATISFIED
    return JobState(Stage.WAITING, line.job_id, words, is_hopeless=is_hopeless)
