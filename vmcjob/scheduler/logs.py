"""Logs and scripts of the jobs of runs, beside the workers' logs."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.rundir import RunDir
from vmcjob.scheduler.registry import backend_of


def find_script(run: RunDir) -> Path | None:
    """The script of the run's latest job; None without one."""
    try:
        return backend_of(run).find_script(run)
    except SchedulerError:  # of a backend that is not ours
        return None


def read_job_logs(run: RunDir, seen: dict[Path, int], rank: int | None = None) -> Iterator[bytes]:
    """The logs of the run's latest job, beside its workers' logs: errors first, then output.

    `seen` has the number of bytes read of each file, and is updated. With `rank`, only the logs
    beside this worker.
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
