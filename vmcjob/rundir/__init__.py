"""The run directory is the database: all paths and small files of one run, and run selection."""

from vmcjob.rundir.directory import OLD, RunDir
from vmcjob.rundir.files import DISK_FULL, is_about_full_disk, is_disk_full, refresh
from vmcjob.rundir.groups import Group, find_damaged_groups, find_groups
from vmcjob.rundir.log import LogFiles, LogReader
from vmcjob.rundir.process import Process
from vmcjob.rundir.records import (
    END,
    LOCAL,
    REFUSED,
    RESULTS,
    SHORT_OF_MEMORY,
    Activity,
    Cancellation,
    Heartbeat,
    Notification,
    Outcome,
    OutcomeRecord,
    Record,
    Sequel,
    Submission,
)
from vmcjob.rundir.results import RESULTS_LOST
from vmcjob.rundir.selection import list_runs, select

__all__ = [
    "DISK_FULL",
    "END",
    "LOCAL",
    "OLD",
    "REFUSED",
    "RESULTS",
    "RESULTS_LOST",
    "SHORT_OF_MEMORY",
    "Activity",
    "Cancellation",
    "Group",
    "Heartbeat",
    "LogFiles",
    "LogReader",
    "Notification",
    "Outcome",
    "OutcomeRecord",
    "Process",
    "Record",
    "RunDir",
    "Sequel",
    "Submission",
    "find_damaged_groups",
    "find_groups",
    "is_about_full_disk",
    "is_disk_full",
    "list_runs",
    "refresh",
    "select",
]
