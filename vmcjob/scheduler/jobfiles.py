"""What a run's job leaves in the folder of its submission: its script, and its own logs."""

from pathlib import Path

from vmcjob.rundir import RunDir


def job_folder(root: Path, job_name: str) -> Path:
    """Where everything about one submission to SLURM is kept."""
    return root / ".slurm" / job_name


def find_script(run: RunDir) -> Path | None:
    """The script that sbatch got for the run's latest job; None if there is none."""
    job = _job(run)
    if job is None:
        return None
    folder, job_id = job
    path = folder / f"{job_id.partition('_')[0]}_submission.sh"  # one for a whole array
    return path if path.is_file() else None


def find_job_logs(run: RunDir) -> list[Path]:
    """What the run's latest job said besides its worker: errors first, then output."""
    job = _job(run)
    if job is None:
        return []
    folder, job_id = job
    return sorted(folder.glob(f"{job_id}_[0-9]*_log.err")) + sorted(
        folder.glob(f"{job_id}_[0-9]*_log.out")
    )


def _job(run: RunDir) -> tuple[Path, str] | None:
    """Folder and id of the run's latest job; None if it was never given to SLURM."""
    submission = run.read_submission()
    if submission is None or submission.job_name is None or submission.job_id is None:
        return None
    return job_folder(run.path.parent, submission.job_name), submission.job_id
