"""Asking a busy slurmctld again: a bounded number of times, after pauses that grow."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from vmcjob.errors import SchedulerError
from vmcjob.scheduler.slurm import commands
from vmcjob.slurm.environment import is_away, is_busy, is_full, is_unclear

T = TypeVar("T")
log = logging.getLogger("vmcjob")

MAX_PAUSE_S = 15.0
N_PAUSES = 50  # about twelve minutes in all
N_PAUSES_OF_QUESTIONS = 8  # about a minute
MAX_UNANSWERED = 3
"""Questions without any answer, after which slurmctld counts as hanging and not as busy."""
pause = time.sleep
SETTLING_S = 10.0
"""SLURM's default MessageTimeout: so long slurmctld may take to do what sbatch has given up."""


class Patience:
    """The pauses of one submission."""

    def __init__(self, n_pauses: int = N_PAUSES) -> None:
        self._pauses = _pauses(n_pauses)

    def wait(self, error: SchedulerError) -> None:
        """Pause after a busy answer; the error itself, explained, when all pauses are used up."""
        pause_s = next(self._pauses, None)
        if pause_s is None:
            raise explained(error) from None
        if is_unclear(str(error)):
            pause_s = max(pause_s, SETTLING_S)
        log.warning("SLURM is busy (%s); asking again in %g s", error, pause_s)
        pause(pause_s)


def ask_patiently(ask: Callable[[], T]) -> T:
    """The answer to a question that changes nothing; SchedulerError if SLURM stays busy.

    A controller that is away is not waited for: there may be none. A dry run asks twice at most.
    """
    hurry = commands.current_hurry()
    patience = Patience(N_PAUSES_OF_QUESTIONS if hurry is None else 1)
    while True:
        try:
            return ask()
        except SchedulerError as error:
            if not is_busy(str(error)) or (hurry is not None and hurry.silence is not None):
                raise
            patience.wait(error)


def may_pass(error: SchedulerError) -> bool:
    """Whether a submission is worth another try: SLURM was there a moment ago."""
    return is_busy(str(error)) or is_away(str(error))


def explained(error: SchedulerError) -> SchedulerError:
    """The error of a controller that stayed busy, with what helps."""
    if is_full(str(error)):
        return SchedulerError(
            f"{error}: SLURM has as many jobs as it keeps at a time (MaxJobCount), or is "
            "overloaded; submit again when other jobs have ended"
        )
    return SchedulerError(f"{error}; SLURM stayed busy, submit again later")


def _pauses(count: int) -> Iterator[float]:
    """1, 2, 4, 8 and then always 15 seconds."""
    return (min(MAX_PAUSE_S, 2.0**n) for n in range(count))
