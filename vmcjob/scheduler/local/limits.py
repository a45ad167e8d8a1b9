"""Budgets in a launcher: stop runs, or do not start them, if the budget is used up."""

import logging
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from vmcjob.errors import RunDirError
from vmcjob.protocol import STOP
from vmcjob.rundir import Outcome, OutcomeRecord, Process, RunDir
from vmcjob.runs.budget import BudgetWatch, group_of, why_not_begun
from vmcjob.scheduler.lock import queue_lock

log = logging.getLogger("vmcjob")


class Limits:
    """The limits of the runs of one launcher."""

    def __init__(self) -> None:
        self._watches: dict[RunDir, BudgetWatch] = {}
        self._stopped: dict[RunDir, str] = {}  # workers that were asked to, and why

    def stop(self, workers: Mapping[subprocess.Popen[bytes], RunDir]) -> None:
        """Ask workers whose budget is used up to stop at their next checkpoints."""
        for worker, run in workers.items():
            watch = self._watches.setdefault(run, BudgetWatch(run))
            if run not in self._stopped and watch.has_come():
                self._stopped[run] = watch.words
                worker.send_signal(STOP)

    def note_end(self, run: RunDir) -> None:
        """Record that a run was stopped because of its budget."""
        reason, outcome = self._stopped.pop(run, None), run.read_outcome()
        if reason and (outcome is None or outcome.outcome is Outcome.PREEMPTED):
            _write(run, reason)

    def leave(self, run: RunDir) -> bool:
        """Whether a run must not start; the reason is then recorded, and its turn is over."""
        group = group_of(run)
        reason = None if group is None else why_not_begun(run, group)
        if reason is None:
            return False
        with queue_lock(run.path.parent, patience_s=float("inf")):
            submission = run.read_submission()
            if submission is None or submission.launcher != Process.of_pid(os.getpid()):
                return True  # cancelled, or taken over by a later submission
            with suppress(RunDirError):  # on a full disk it stays in the queue of nobody
                run.clear_submission()
        _write(run, reason)
        return True


def _write(run: RunDir, reason: str) -> None:
    """Record the reason; a full disk may prevent this."""
    try:
        run.write_outcome(OutcomeRecord(outcome=Outcome.EXHAUSTED, message=reason))
    except RunDirError as error:
        log.warning("%s", error)
