"""Runs in a notebook: labelled data, tables of energies, and trained wave functions.

Nothing here writes to a run.
"""

from vmcjob.analysis.energies import aggregate
from vmcjob.analysis.runs import Run, open_run, open_runs

__all__ = ["Run", "aggregate", "open_run", "open_runs"]
