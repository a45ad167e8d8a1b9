"""Notify a command of the user's choice about the end of a run or a submission.

The command never disturbs the run: it has a time limit, its output and errors go to a log, and no
exception is raised.
"""

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from vmcjob.errors import VmcJobError
from vmcjob.protocol import how_it_ended
from vmcjob.rundir import (
    Group,
    Notification,
    Outcome,
    OutcomeRecord,
    RunDir,
    Submission,
    find_groups,
)
from vmcjob.rundir.process import host_name
from vmcjob.runs.state import State
from vmcjob.runs.status import examine

MAX_S = 20.0  # below the 30 s that SLURM leaves by default between SIGTERM and SIGKILL
SCHEMA_VERSION = 1
RUN_ENDED = "run_ended"
SUBMISSION_ENDED = "submission_ended"
log = logging.getLogger("vmcjob")


def why_not_found(command: str) -> str | None:
    """The problem with a command on this machine; None if its program exists."""
    program = shlex.split(command)[0]
    if shutil.which(program) is not None:
        return None
    return (
        f"notify: no program {program} on this host; the runs go on without it, and their logs say "
        "so, unless the hosts that they run on have it"
    )


def notify_run(run: RunDir, command: str | None) -> None:
    """Notify about the end of a run, once for each end; requeuing a finished run is no end."""
    if command is None:
        return
    try:
        submission, document = run.read_submission(), describe_run(run)
        end = Notification(submission=_name_of(submission), state=document["state"])
        known = run.read_notification()
        if known is not None and known.is_of(end):
            return
        with suppress(VmcJobError):  # on a full disk, better told twice than never
            run.write_notification(end)
    except (OSError, VmcJobError) as error:  # removed, or unreadable: there is nobody to speak of
        log.warning("notify: %s", error)
        return
    document = {"schema_version": SCHEMA_VERSION, "event": RUN_ENDED} | document
    call(command, document, run.log_path, run.path)


def notify_job(run: RunDir, command: str | None) -> None:
    """Notify about the end of a batch system's run, and of its submission after the last run."""
    notify_run(run, command)
    if command is None:
        return
    root, name = run.path.parent, run.path.name
    group = find_groups(root, [name]).get(name)
    if group is None:
        return
    runs = group.runs(root)
    if all(_is_through(other, group) for other in runs) and group.tell_once(root):
        notify_submission(runs, command, run.log_path)


def _is_through(run: RunDir, group: Group) -> bool:
    """Whether the end of a run in its latest submission was reported."""
    submission, known = run.read_submission(), run.read_notification()
    if submission is None:
        return False  # left for later
    is_before = submission.submitted_at < group.submitted_at  # it was finished then, and skipped
    is_told = known is not None and known.submission == _name_of(submission)
    return is_before or is_told or submission.cancelled_at is not None


def notify_submission(runs: Sequence[RunDir], command: str | None, talk: Path) -> None:
    """Notify that all runs of a submission have ended; errors go to the file `talk`."""
    if command is None or not runs:
        return
    described: list[dict[str, Any]] = []
    for run in runs:
        with suppress(OSError, VmcJobError):  # those that have been removed are left out
            described.append(describe_run(run))
    root = runs[0].path.absolute().parent
    document = {
        "schema_version": SCHEMA_VERSION,
        "event": SUBMISSION_ENDED,
        "runs_root": str(root),
        "host": host_name(),
        "ended_at": time.time(),
        "states": Counter(found["state"] for found in described),
        "runs": described,
    }
    call(command, document, talk, root)


def describe_run(run: RunDir) -> dict[str, Any]:  # a JSON document
    """Identity of a run, and how its last attempt ended; RunDirError without a record."""
    record, submission, outcome = run.read_record(), run.read_submission(), run.read_outcome()
    is_cancelled = run.read_cancellation() is not None
    state = final_state(outcome, submission, is_cancelled=is_cancelled)
    message = outcome.message if outcome else ""
    if state is State.DEAD:  # it could not say why, but others may know
        seen = examine(run)
        state, message = (seen.state if seen.state is State.BLOCKED else state), seen.message
    return {
        "run_id": record.run_id,
        "name": record.name,
        "point": dict(record.point),
        "seed": record.seed,
        "state": state,
        "message": message,
        "run_dir": str(run.path.absolute()),
        "log": str(run.log_path.absolute()),
        "results": str(run.store_path.absolute()),
        "host": host_name(),
        "job_id": submission.job_id if submission else None,
        "submitted_at": submission.submitted_at if submission else None,
        "started_at": submission.started_at if submission else None,
        "ended_at": outcome.time if outcome else time.time(),
    }


def final_state(
    outcome: OutcomeRecord | None, submission: Submission | None, *, is_cancelled: bool
) -> State:
    """The state of a run that has ended and does not come back."""
    if outcome is not None and outcome.outcome is not Outcome.PREEMPTED:
        return State(outcome.outcome)
    if is_cancelled or (submission is not None and submission.cancelled_at is not None):
        return State.CANCELLED
    return State(outcome.outcome) if outcome is not None else State.DEAD


def call(command: str, document: dict[str, Any], talk: Path, folder: Path) -> None:
    """Pass the document to the command; its output and errors go to the file `talk`."""
    with suppress(OSError), open(talk, "ab", buffering=0) as sink:
        problem = _run(shlex.split(command), json.dumps(document) + "\n", sink, folder)
        if problem:
            sink.write(f"vmcjob: notify: {command}: {problem}\n".encode(errors="replace"))


def _run(words: Sequence[str], text: str, sink: BinaryIO, folder: Path) -> str | None:
    """The problem with a command that gets this text; None without a problem."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=sink,
            cwd=folder,
            start_new_session=True,  # that all of it can be ended
        )
    except OSError as error:
        return f"cannot be started on {host_name()}: {error.strerror}"
    try:
        process.communicate(text.encode(), timeout=MAX_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # one that waits for a dead disk outlives that
            process.wait(timeout=1.0)
        return f"did not end within {MAX_S:g} s, and was killed"
    return how_it_ended(process.returncode) if process.returncode else None


def _name_of(submission: Submission | None) -> str:
    """A name that no other submission of the run has."""
    if submission is None:
        return ""
    return submission.job_name or f"{submission.job_id} of {submission.submitted_at}"
