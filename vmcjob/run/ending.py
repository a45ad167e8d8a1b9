"""The outcome of an attempt, from the error that ended it."""

import logging
import traceback

from vmcjob.errors import DivergedError, VmcJobError
from vmcjob.protocol import OUT_OF_MEMORY
from vmcjob.run.stop import StoppedError
from vmcjob.rundir import DISK_FULL, Outcome, OutcomeRecord, is_about_full_disk

RANK_LOST = (
    "another rank of the run has ended or cannot be reached (see `vmcjob logs --rank`); "
    "submitted again, the run continues"
)
log = logging.getLogger("vmcjob")


def outcome_of(error: Exception, *, is_alone: bool = True) -> OutcomeRecord:
    """The outcome for an exception; the traceback of a bug goes to the log."""
    if isinstance(error, StoppedError):
        return OutcomeRecord(outcome=Outcome.PREEMPTED, message=str(error))
    if isinstance(error, DivergedError):
        return OutcomeRecord(outcome=Outcome.DIVERGED, message=str(error))
    return OutcomeRecord(outcome=Outcome.FAILED, message=_explain_failure(error, is_alone))


def is_out_of_memory(error: Exception) -> bool:
    """Whether an exception reports lack of memory, on the host or (in XLA's words) on a device."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _explain_failure(error: Exception, is_alone: bool) -> str:
    if is_about_full_disk(error):
        return f"{error}; {DISK_FULL}"
    if isinstance(error, VmcJobError):
        return str(error)
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    if not is_alone and _is_loss(error):
        log.error("%s", error)
        return RANK_LOST
    log.error("%s", "".join(traceback.format_exception(error)).rstrip())
    return f"{type(error).__name__}: {error}"


def _is_loss(error: Exception) -> bool:
    """Whether a collective failed: the libraries behind it have no exception of their own."""
    return any(name in str(error) for name in ("Gloo", "NCCL"))
