"""Folders of batch systems below a runs root: one for each batch."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from vmcjob.rundir import LOCAL, RunDir
from vmcjob.scheduler.registry import backends


def job_folder(root: Path, scheduler: str, job_name: str) -> Path:
    """The folder of one batch."""
    return root / f".{scheduler}" / job_name


def job_folders(root: Path) -> list[Path]:
    """The folders of all batches."""
    places = [root / f".{found.name}" for found in backends() if found.name != LOCAL]
    return sorted(path for place in places for path in place.glob("*") if path.is_dir())


def make_job_name(name: str, runs: Sequence[RunDir]) -> tuple[str, int]:
    """A unique name that a dry run shows in advance, and the number of earlier submissions."""
    number = 1 + max(map(_count_submissions, runs))
    identity = json.dumps([number, *(str(run.path) for run in runs)])
    return f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}", number


def _count_submissions(run: RunDir) -> int:
    """Number of known submissions of the run to a batch system."""
    submissions = [known.read_submission() for known in (run, *run.earlier)]
    return max((submission.number for submission in submissions if submission), default=0)
