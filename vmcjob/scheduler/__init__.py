"""Scheduling: the only room that queues, starts and cancels work.

Each backend implements the contract of `contract.Backend` and is registered here.
"""

from vmcjob.scheduler.accounting import ask_for_use
from vmcjob.scheduler.cancel import cancel
from vmcjob.scheduler.contract import Answer, Backend, Cost, JobPreview, SubmissionOptions
from vmcjob.scheduler.drafting import Draft, draft
from vmcjob.scheduler.folders import job_folders
from vmcjob.scheduler.groups import form_groups
from vmcjob.scheduler.local import Local, serve
from vmcjob.scheduler.lock import queue_lock
from vmcjob.scheduler.logs import find_script, read_job_logs
from vmcjob.scheduler.memory import largest, why_too_large
from vmcjob.scheduler.queue import Watch, look
from vmcjob.scheduler.receipt import Cancelled, Receipt, Skipped, Submitted
from vmcjob.scheduler.records import require_starts
from vmcjob.scheduler.registry import choose, register, registered
from vmcjob.scheduler.slurm import Slurm, asked_gpus, draft_profile, has_gpus, hurried
from vmcjob.scheduler.submission import check, submit
from vmcjob.scheduler.takeover import take_over

register(Local())
register(Slurm())

__all__ = [
    "Answer",
    "Backend",
    "Cancelled",
    "Cost",
    "Draft",
    "JobPreview",
    "Local",
    "Receipt",
    "Skipped",
    "Slurm",
    "SubmissionOptions",
    "Submitted",
    "Watch",
    "ask_for_use",
    "asked_gpus",
    "cancel",
    "check",
    "choose",
    "draft",
    "draft_profile",
    "find_script",
    "form_groups",
    "has_gpus",
    "hurried",
    "job_folders",
    "largest",
    "look",
    "queue_lock",
    "read_job_logs",
    "register",
    "registered",
    "require_starts",
    "serve",
    "submit",
    "take_over",
    "why_too_large",
]
