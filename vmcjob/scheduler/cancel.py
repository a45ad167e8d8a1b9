"""Taking runs back: out of a queue, or stopped at a checkpoint."""

from collections.abc import Sequence

from vmcjob.errors import VmcJobError
from vmcjob.rundir import RunDir
from vmcjob.scheduler.cancellation import failed
from vmcjob.scheduler.receipt import Cancelled
from vmcjob.scheduler.registry import AnyBackend, backend_of


def cancel(runs: Sequence[RunDir]) -> list[Cancelled]:
    """Take runs out of the queue, or have their workers stop at the next checkpoint.

    What became of each, in the order of the runs: a run that cannot be cancelled is no reason to
    let the others go on. Each backend is asked once for all of its runs.
    """
    done: dict[RunDir, Cancelled] = {}
    theirs: dict[str, tuple[AnyBackend, list[RunDir]]] = {}
    for run in runs:
        try:
            backend = backend_of(run)
        except VmcJobError as error:
            done[run] = failed(run, error)
        else:
            theirs.setdefault(backend.name, (backend, []))[1].append(run)
    for backend, part in theirs.values():
        done |= zip(part, backend.cancel(part), strict=True)
    return [done[run] for run in runs]
