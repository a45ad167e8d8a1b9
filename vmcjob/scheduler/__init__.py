"""Where runs are sent: the only room that knows how work is queued, started and taken back."""

from vmcjob.scheduler.local import serve
from vmcjob.scheduler.requests import (
    Cancelled,
    Receipt,
    Skipped,
    Submitted,
    cancel,
    choose,
    preview,
    submit,
)

__all__ = [
    "Cancelled",
    "Receipt",
    "Skipped",
    "Submitted",
    "cancel",
    "choose",
    "preview",
    "serve",
    "submit",
]
