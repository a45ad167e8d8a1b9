"""The run directory is the database: every path and small file of one run, and how to find runs."""

from vmcjob.rundir.directory import OLD, RESULTS_LOST, RunDir
from vmcjob.rundir.process import Process
from vmcjob.rundir.records import (
    Cancellation,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    Phase,
    Record,
    Submission,
)
from vmcjob.rundir.selection import list_runs, select

__all__ = [
    "OLD",
    "RESULTS_LOST",
    "Cancellation",
    "Heartbeat",
    "Outcome",
    "OutcomeRecord",
    "Phase",
    "Process",
    "Record",
    "RunDir",
    "Submission",
    "list_runs",
    "select",
]
