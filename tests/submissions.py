"""Submissions in one line, for tests that look at what comes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmcjob import scheduler
from vmcjob.plan import Plan
from vmcjob.resources import Request
from vmcjob.scheduler import Local, Receipt, Slurm, SubmissionOptions
from vmcjob.scheduler.slurm.arrays import Array
from vmcjob.site import Site


@dataclass(frozen=True)
class SlurmDraft:
    """What a submission to SLURM would do now."""

    receipt: Receipt
    arrays: tuple[Array, ...]


def draft_for_slurm(
    root: Path,
    plans: Sequence[Plan],
    site: Site | None = None,
    request: Request | None = None,
    max_parallel: int | None = None,
    *,
    is_restart: bool = False,
) -> SlurmDraft:
    """What SLURM would be given."""
    options = _options(root, site, request, max_parallel, is_restart=is_restart)
    found = scheduler.draft(Slurm(), plans, options)
    arrays = tuple(batch for batch in found.batches if isinstance(batch, Array))
    return SlurmDraft(found.receipt, arrays)


def submit_to_slurm(
    root: Path,
    plans: Sequence[Plan],
    site: Site | None = None,
    request: Request | None = None,
    max_parallel: int | None = None,
    *,
    is_restart: bool = False,
) -> Receipt:
    """Give the runs to SLURM."""
    options = _options(root, site, request, max_parallel, is_restart=is_restart)
    return scheduler.submit(Slurm(), plans, options)


def draft_here(root: Path, plans: Sequence[Plan], *, is_restart: bool = False) -> Receipt:
    """What this machine would do."""
    options = _options(root, is_restart=is_restart)
    return scheduler.draft(Local(), plans, options).receipt


def submit_here(
    root: Path,
    plans: Sequence[Plan],
    *,
    max_parallel: int = 1,
    worker_command: tuple[str, ...] | None = None,
    is_restart: bool = False,
) -> Receipt:
    """Have this machine work on the runs."""
    options = _options(root, max_parallel=max_parallel, is_restart=is_restart)
    return scheduler.submit(Local(worker_command), plans, options)


def _options(
    root: Path,
    site: Site | None = None,
    request: Request | None = None,
    max_parallel: int | None = None,
    *,
    is_restart: bool = False,
) -> SubmissionOptions:
    return SubmissionOptions(
        root, site or Site(), request or Request(), max_parallel, is_restart=is_restart
    )
