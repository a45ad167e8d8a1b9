"""Cancel runs: take them out of a queue, or stop them at a checkpoint."""

from collections.abc import Sequence

from vmcjob.errors import VmcJobError
from vmcjob.rundir import RunDir
from vmcjob.scheduler.cancellation import failed
from vmcjob.scheduler.receipt import Cancelled
from vmcjob.scheduler.registry import AnyBackend, backend_of


def cancel(runs: Sequence[RunDir]) -> list[Cancelled]:
    """Take runs out of the queue, or stop their workers at the next checkpoint.

    Returns the result for each run, in order; one run that cannot be cancelled does not stop the
    others from being cancelled. Each backend is asked once for all of its runs.
    """
    done: dict[RunDir, Cancelled] = {}
    theirs: dict[str, tuple[AnyBackend, list[RunDir]]] = {}
    for run in runs:
        run.refresh()  # another host may have submitted it a moment ago
        try:
            backend = backend_of(run)
        except VmcJobError as error:
            done[run] = failed(run, error)
        else:
            theirs.setdefault(backend.name, (backend, []))[1].append(run)
    for backend, part in theirs.values():
        done |= zip(part, backend.cancel(part), strict=True)
    return [done[run] for run in runs]
