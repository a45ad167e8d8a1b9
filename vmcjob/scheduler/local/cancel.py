"""Cancel runs of this machine: take them from their launcher, or stop them at a checkpoint."""

from vmcjob.errors import SchedulerError, VmcJobError
from vmcjob.rundir import Outcome, Process, RunDir
from vmcjob.runs.status import examine
from vmcjob.scheduler.cancellation import ASKED, failed, not_active, workers
from vmcjob.scheduler.lock import queue_lock
from vmcjob.scheduler.receipt import Cancelled


def cancel_here(run: RunDir) -> Cancelled:
    """Cancel a run of this machine."""
    try:
        found = examine(run)
        if not (found.state.is_active or found.state.is_waiting):
            return not_active(run, found.state)
        with queue_lock(run.path.absolute().parent):
            return _take_back(run)
    except VmcJobError as error:
        return failed(run, error)


def _take_back(run: RunDir) -> Cancelled:
    """Cancel a run that was active a moment ago; SchedulerError if another host has it."""
    found = examine(run)  # it may have started meanwhile
    if found.state.is_waiting:
        run.write_cancellation(None)
        run.clear_submission()
        outcome = run.read_outcome()
        if outcome is not None and outcome.outcome is Outcome.EXHAUSTED:
            run.clear_outcome()  # it is not the budget any more that keeps it
        return Cancelled(run, True, "taken out of the queue")
    asked = workers(run)
    for worker in filter(Process.is_alive, asked):
        run.write_cancellation(worker)
        if worker.terminate():
            return Cancelled(run, True, ASKED)
    away = [worker.host for worker in asked if worker.is_alive() is None]
    if found.state.is_active and away:
        raise SchedulerError(f"{found.run_id}: runs on {away[0]}; cancel it there")
    return Cancelled(run, False, "ended just now")
