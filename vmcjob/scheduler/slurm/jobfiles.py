"""Files of a run's job in the folder of its submission: the script and the job's logs."""

import os
import pickletools
from contextlib import suppress
from pathlib import Path

from vmcjob.errors import NotFoundError, RunDirError
from vmcjob.rundir import RunDir, Submission
from vmcjob.scheduler.folders import job_folder

NAME = "slurm"  # name of the backend, and of its folder below a runs root


def find_script(run: RunDir) -> Path | None:
    """The script of the run's latest job; None if the file is gone."""
    job = _job(run)
    if job is None:
        return None
    folder, job_id = job
    path = folder / f"{job_id.partition('_')[0]}_submission.sh"  # one for a whole array
    return path if os.path.isfile(path) else None  # unlike Path, no error without permission


def adopt(run: RunDir, submission: Submission, job_id: str) -> None:
    """Provide a job with its request, if SLURM took it but submitit did not learn its id.

    submitit names request and script after the id. A job without its request ends after a minute.
    Nothing is unpickled here.
    """
    folder = _folder(run, submission)
    requested = folder / f"{job_id}_submitted.pkl"
    script = folder / f"{job_id.partition('_')[0]}_submission.sh"
    try:
        if not requested.exists():
            for path in folder.glob("*.pkl"):
                if _is_request(path, run):
                    os.replace(path, requested)
        for path in folder.glob(".submission_file_*.sh"):
            os.replace(path, script)
    except OSError as error:
        raise RunDirError(f"{folder}: cannot be written: {error.strerror}") from None


def clear_requests(folder: Path) -> None:
    """Remove the files that submitit wrote for a submission that SLURM did not take."""
    for path in (*folder.glob("*.pkl"), *folder.glob(".submission_file_*.sh")):
        if not path.stem.endswith("_submitted"):
            with suppress(OSError):
                path.unlink()


def _is_request(path: Path, run: RunDir) -> bool:
    """Whether the pickled request names the run's directory."""
    try:
        return any(word == str(run.path) for _, word, _ in pickletools.genops(path.read_bytes()))
    except ValueError:  # cut short
        return False


def find_logs(run: RunDir, rank: int | None) -> list[Path]:
    """The log files of SLURM and submitit for the run's latest job.

    NotFoundError if there are none yet.
    """
    found = _logs(run, rank)
    if not found:
        where = f" beside rank {rank}" if rank else ""
        raise NotFoundError(
            f"{run.path.name}: its job has not said anything{where} yet, or it was pruned"
        )
    return found


def has_logs(run: RunDir) -> bool:
    """Whether the run's latest job has begun: it first opens its logs."""
    return bool(_logs(run, None))


def _logs(run: RunDir, rank: int | None) -> list[Path]:
    """The existing logs of the run's latest job."""
    found: list[Path] = []
    if job := _job(run):
        folder, job_id = job
        for end in ("err", "out"):
            task = "[0-9]*" if rank is None else rank  # submitit's name for it
            found += sorted(folder.glob(f"{job_id}_{task}_log.{end}"))
    return found


def _job(run: RunDir) -> tuple[Path, str] | None:
    """Folder and id of the run's latest job; None if it was never submitted to SLURM."""
    submission = run.read_submission()
    if submission is None or submission.scheduler != NAME or submission.job_id is None:
        return None
    return _folder(run, submission), submission.job_id


def _folder(run: RunDir, submission: Submission) -> Path:
    return job_folder(run.path.parent, NAME, submission.job_name or "")
