"""Resources that the jobs of runs have used, by the accounts of their batch systems."""

from collections.abc import Iterable

from vmcjob.rundir import RunDir
from vmcjob.runs.usage import Spent
from vmcjob.scheduler.registry import backends


def ask_for_use(runs: Iterable[RunDir]) -> dict[RunDir, Spent]:
    """The use by each run's latest job; only runs whose batch system keeps accounts."""
    known = {run: run.read_submission() for run in runs}
    found: dict[RunDir, Spent] = {}
    for backend in backends():
        theirs = {run: s for run, s in known.items() if s and s.scheduler == backend.name}
        if theirs:
            found |= backend.ask_for_use(theirs)
    return found
