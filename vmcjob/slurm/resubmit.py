"""A run whose job SLURM does not bring back, submitted again from within this job."""

import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

from vmcjob.errors import RunDirError
from vmcjob.protocol.batch import say
from vmcjob.rundir import RunDir, Submission, list_runs
from vmcjob.slurm.environment import is_away, is_busy
from vmcjob.slurm.programs import QUERY_TIMEOUT_S, start

PAUSES_S = (2.0, 10.0, 20.0)  # a job that is ended has half a minute of grace, by default
_FULFILMENT = re.compile(r"\([a-z]*\)")
UNKNOWN = "unknown"  # whether SLURM has taken a job


def resubmit(run: RunDir, submission: Submission, job_id: str, folder: Path) -> bool:
    """Have the run's script done once more, in a job of its own; False if SLURM refuses.

    Job name and index stay. The new job waits for a copy of the pickled request under its own id.
    A crash after sbatch leaves a job that
    is found by its name, and the next submission gives it what it waits for.
    """
    array, _, index = job_id.partition("_")
    waiting = replace(
        submission,
        job_id=None,
        pid=None,
        process_start=None,
        worker_pid=None,
        worker_start=None,
        started_at=None,
        submitted_at=time.time(),
    )
    script = folder / f"{array}_submission.sh"
    try:
        run.write_submission(waiting)
        options = [f"--job-name={submission.job_name}"]
        if submission.memory_mb is not None:
            options.append(f"--mem={submission.memory_mb}M")
        number = _submit_once(script, options, array, index)
        if number is UNKNOWN:  # the next submission finds the job by its name, if there is one
            return False
        if number is None:
            run.write_submission(submission)
            return False
        new_id = f"{number}_{index}" if index else number
        shutil.copyfile(script, folder / f"{number}_submission.sh")
        _copy(folder / f"{job_id}_submitted.pkl", folder / f"{new_id}_submitted.pkl")
        run.write_submission(replace(waiting, job_id=new_id))
    except (OSError, RunDirError) as error:
        say(f"cannot be submitted again: {error}")
        return False
    say(f"submitted again, as job {new_id}")
    _move_waiting(run, job_id, new_id)
    return True


def _move_waiting(run: RunDir, old_id: str, new_id: str) -> None:
    """Have the jobs of runs that wait for this run wait for its new job instead of its old one."""
    own_id = re.compile(rf":{old_id}(?![\d_])")
    waiting = filter(None, (other.read_submission() for other in list_runs(run.path.parent)))
    numbers = {
        submission.job_id.partition("_")[0]
        for submission in waiting
        if submission.job_id is not None
        and submission.started_at is None
        and run.path.name in (submission.waits_for or {})
    }
    for number in sorted(numbers):  # all elements of an array wait for the same
        command = ("squeue", "--noheader", "--all", f"--jobs={number}", "--format=%E")
        done = start(command, QUERY_TIMEOUT_S)
        told = (line.strip() for line in done.stdout.splitlines()) if done else ()
        # afterok:22_3(unfulfilled),afterany:21(unfulfilled)
        found = next((line for line in told if own_id.search(line)), None)
        if found is not None:
            wish = own_id.sub(f":{new_id}", _FULFILMENT.sub("", found))
            update = ("scontrol", "update", f"JobId={number}", f"Dependency={wish}")
            start(update, QUERY_TIMEOUT_S)


def _copy(source: Path, target: Path) -> None:
    """At once: the job that waits for it may look at any moment."""
    partial = target.with_suffix(".partial")
    shutil.copyfile(source, partial)
    os.replace(partial, target)


def _submit_once(script: Path, options: list[str], array: str, index: str) -> str | None:
    """Give sbatch a script, again while SLURM is busy; the number of the new job.

    None if SLURM refuses. Before each further try, SLURM is asked whether it has the job already;
    UNKNOWN if it does not say.
    """
    element = [f"--array={index}"] if index else []
    command = ("sbatch", "--parsable", *element, *options, str(script))
    for pause_s in (*PAUSES_S, None):
        done = start(command, QUERY_TIMEOUT_S)
        if done is not None and done.returncode == 0:
            lines = [line.partition(";")[0] for line in done.stdout.splitlines()]
            return next((line for line in reversed(lines) if line.isdigit()), None)
        answer = done.stderr.strip() if done else "no answer within a minute"
        say(f"sbatch: {answer}")
        if not (is_busy(answer) or is_away(answer)):
            return None
        if pause_s is not None:
            time.sleep(pause_s)
        if found := _find_later(options[0].removeprefix("--job-name="), array, index):
            return found
    return None


def _find_later(name: str, array: str, index: str) -> str | None:
    """The number of the job that came after this one for the same run; None if SLURM has none."""
    command = ("squeue", "--noheader", "--array", "--states=all", f"--name={name}")
    done = start((*command, "--format=%i"), QUERY_TIMEOUT_S)
    if done is None or done.returncode != 0:
        return UNKNOWN
    ids = [line.strip().partition("_") for line in done.stdout.splitlines()]
    numbers = [int(number) for number, _, place in ids if place == index and number.isdigit()]
    later = max((number for number in numbers if number > int(array)), default=0)
    return str(later) if later else None
