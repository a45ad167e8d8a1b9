"""A run whose job SLURM does not bring back, submitted again from within this job."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from vmcjob.errors import RunDirError
from vmcjob.rundir import RunDir, Submission
from vmcjob.supervisor.contract import say
from vmcjob.supervisor.programs import QUERY_TIMEOUT_S, start


def resubmit(run: RunDir, submission: Submission, job_id: str, folder: Path) -> bool:
    """Have the run's script done once more, in a job of its own; False if SLURM refuses.

    Job name and index stay, and with them the request that is pickled for the job: the new job
    needs a copy of it under its own id, which it waits for. A crash after sbatch leaves a job that
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
        number = _submit_script(script, f"--job-name={submission.job_name}", index=index)
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
    return True


def _copy(source: Path, target: Path) -> None:
    """At once: the job that waits for it may look at any moment."""
    partial = target.with_suffix(".partial")
    shutil.copyfile(source, partial)
    os.replace(partial, target)


def _submit_script(script: Path, *options: str, index: str = "") -> str | None:
    """Give sbatch a script, of an array one element; the new job's number, None if it refuses."""
    element = [f"--array={index}"] if index else []
    done = start(("sbatch", "--parsable", *element, *options, str(script)), QUERY_TIMEOUT_S)
    if done is None or done.returncode != 0:
        say(f"sbatch: {done.stderr.strip() if done else 'no answer'}")
        return None
    lines = [line.partition(";")[0] for line in done.stdout.splitlines()]
    return next((line for line in reversed(lines) if line.isdigit()), None)
