"""Where runs are sent: the only room that knows how work is queued, started and taken back."""

from vmcjob.scheduler import slurm
from vmcjob.scheduler.cancel import cancel
from vmcjob.scheduler.jobfiles import find_script, job_folders, read_job_logs
from vmcjob.scheduler.local import queue_lock, serve
from vmcjob.scheduler.queue import Watch, look
from vmcjob.scheduler.receipt import Cancelled, Receipt, Skipped, Submitted
from vmcjob.scheduler.records import require_starts
from vmcjob.scheduler.requests import choose, preview, submit
from vmcjob.scheduler.takeover import take_over

__all__ = [
    "Cancelled",
    "Receipt",
    "Skipped",
    "Submitted",
    "Watch",
    "cancel",
    "choose",
    "find_script",
    "job_folders",
    "look",
    "preview",
    "queue_lock",
    "read_job_logs",
    "require_starts",
    "serve",
    "slurm",
    "submit",
    "take_over",
]
