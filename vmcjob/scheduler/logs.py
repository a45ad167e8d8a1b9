"""What the jobs of runs said besides their workers, and what described them."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.rundir import RunDir
from vmcjob.scheduler.registry import backend_of


def find_script(run: RunDir) -> Path | None:
    """What the run's latest job was described by; None if there is none."""
    try:
        return backend_of(run).find_script(run)
    except SchedulerError:  # of a backend that is not ours
        return None


def read_job_logs(run: RunDir, seen: dict[Path, int], rank: int | None = None) -> Iterator[bytes]:
    """What the run's latest job said besides its workers: errors first, then output.

    `seen` has the bytes of each file that were read before, and is kept up to date. With `rank`,
    only what was said beside this worker.
    """
    for path in backend_of(run).find_logs(run, rank):
        try:
            with open(path, "rb") as file:
                file.seek(seen.setdefault(path, 0))
                for piece in iter(partial(file.read, 1 << 16), b""):
                    seen[path] += len(piece)
                    yield piece
        except OSError as error:
            raise RunDirError(f"{path}: cannot be read: {error.strerror}") from None
