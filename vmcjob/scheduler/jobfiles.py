"""What a run's job leaves in the folder of its submission: its script, and its own logs."""

import os
import pickletools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from vmcjob.errors import NotFoundError, RunDirError, UsageError
from vmcjob.rundir import RunDir, Submission


def job_folder(root: Path, job_name: str) -> Path:
    """Where everything about one submission to SLURM is kept."""
    return root / ".slurm" / job_name


def job_folders(root: Path) -> list[Path]:
    """The folders of all submissions to SLURM."""
    return sorted(path for path in (root / ".slurm").glob("*") if path.is_dir())


def find_script(run: RunDir) -> Path | None:
    """The script that sbatch got for the run's latest job; None if there is none."""
    job = _job(run)
    if job is None:
        return None
    folder, job_id = job
    path = folder / f"{job_id.partition('_')[0]}_submission.sh"  # one for a whole array
    return path if os.path.isfile(path) else None  # unlike Path, no error without permission


def adopt(run: RunDir, submission: Submission, job_id: str) -> None:
    """Give a job what it waits for: SLURM took it, and submitit has never heard of its id.

    submitit names request and script after the id once it knows it; a job that does not find its
    request ends after a minute. Nothing is unpickled here.
    """
    if submission.job_name is None:
        return
    folder = job_folder(run.path.parent, submission.job_name)
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
    run.write_submission(replace(submission, job_id=job_id))


def _is_request(path: Path, run: RunDir) -> bool:
    """Whether what is pickled there names the run's directory."""
    try:
        return any(word == str(run.path) for _, word, _ in pickletools.genops(path.read_bytes()))
    except ValueError:  # cut short
        return False


def read_job_logs(run: RunDir, seen: dict[Path, int], rank: int | None = None) -> Iterator[bytes]:
    """What the run's latest job said besides its workers: errors first, then output.

    `seen` has the bytes of each file that were read before, and is kept up to date. With `rank`,
    only what was said beside this worker.
    """
    for path in _find_job_logs(run, rank):
        try:
            with open(path, "rb") as file:
                file.seek(seen.setdefault(path, 0))
                for piece in iter(partial(file.read, 1 << 16), b""):
                    seen[path] += len(piece)
                    yield piece
        except OSError as error:
            raise RunDirError(f"{path}: cannot be read: {error.strerror}") from None


def _find_job_logs(run: RunDir, rank: int | None) -> list[Path]:
    """The files that SLURM and submitit write for the run's latest job.

    NotFoundError if there is none yet, UsageError if there will be none.
    """
    name, submission = run.path.name, run.read_submission()
    if submission is None or submission.job_name is None:
        advice = "vmcjob logs without --err has all that its workers said"
        raise UsageError(f"{name}: was not given to SLURM; {advice}")
    found: list[Path] = []
    if job := _job(run):
        folder, job_id = job
        for end in ("err", "out"):
            task = "[0-9]*" if rank is None else rank  # submitit's name for it
            found += sorted(folder.glob(f"{job_id}_{task}_log.{end}"))
    if not found:
        where = f" beside rank {rank}" if rank else ""
        raise NotFoundError(f"{name}: its job has not said anything{where} yet, or it was pruned")
    return found


def _job(run: RunDir) -> tuple[Path, str] | None:
    """Folder and id of the run's latest job; None if it was never given to SLURM."""
    submission = run.read_submission()
    if submission is None or submission.job_name is None or submission.job_id is None:
        return None
    return job_folder(run.path.parent, submission.job_name), submission.job_id
