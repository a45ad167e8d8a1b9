"""Cancel runs in any batch system."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from vmcjob.errors import RunDirError, SchedulerError, VmcJobError
from vmcjob.rundir import Process, RunDir, Submission
from vmcjob.runs.status import Queue, Stage, State, examine, heard_of_s
from vmcjob.scheduler.companions import count_others_at_work, is_through
from vmcjob.scheduler.queue import look
from vmcjob.scheduler.receipt import Cancelled

Ending = list[tuple[SchedulerError | None, list[str]]]
"""Jobs that are being ended, and those that are not, with the reason."""

ASKED = "asked to stop at its next checkpoint"
FORGOTTEN = "its job {} is over; the run counts as cancelled"


def cancel_jobs(runs: Sequence[RunDir], end: Callable[[Sequence[str]], Ending]) -> list[Cancelled]:
    """Have a batch system end the runs' jobs, waiting or not; workers still make checkpoints.

    Args:
        runs: all given to this batch system. It is asked once about all of them.
        end: tells the batch system to end the jobs with these ids.
    """
    try:
        seen = look(runs)
    except SchedulerError as error:
        return [failed(run, error) for run in runs]
    done: dict[RunDir, Cancelled] = {}
    marked: dict[RunDir, tuple[str, Submission]] = {}  # with what was recorded before
    for run in runs:
        try:
            job_id, before = _mark(run, seen)
        except RunDirError as error:
            done[run] = failed(run, error)
            continue
        if before is None:
            done[run] = not_active(run, examine(run, seen).state)
        elif job_id is None:
            done[run] = _end_orphan(run)
        elif (job := seen.get(run.path)) is not None and job.stage is Stage.UNKNOWN:
            done[run] = Cancelled(run, True, f"counts as cancelled; {job.words} to end it")
        else:
            marked[run] = job_id, before
    done |= _end_marked(marked, seen, end)
    return [done[run] for run in runs]


def _end_marked(
    marked: Mapping[RunDir, tuple[str, Submission]],
    seen: Queue,
    end: Callable[[Sequence[str]], Ending],
) -> dict[RunDir, Cancelled]:
    """End the jobs of runs that nobody wants any more, but not those that others need."""
    done: dict[RunDir, Cancelled] = {}
    ending: dict[str, list[RunDir]] = {}  # by job
    for run, (job_id, before) in marked.items():  # when all have been marked: they may be one job's
        if others := count_others_at_work(run, before, seen):
            company = "another run" if others == 1 else f"{others} other runs"
            done[run] = Cancelled(run, True, f"{ASKED}; job {job_id} goes on with {company}")
        else:
            ending.setdefault(job_id, []).append(run)
    for error, ids in end(list(ending)):
        for run in (run for job_id in ids for run in ending[job_id]):
            job_id, before = marked[run]
            job = seen.get(run.path)
            if job is not None and job.stage is Stage.ENDED:
                done[run] = Cancelled(run, True, FORGOTTEN.format(job_id))
            elif error is None:
                done[run] = Cancelled(run, True, f"job {job_id} is being cancelled")
            else:
                done[run] = failed(run, error)
                with suppress(RunDirError):
                    run.write_submission(before)
    return done


def _mark(run: RunDir, seen: Queue) -> tuple[str | None, Submission | None]:
    """Say that nobody wants the run to come back: before its job ends, for its supervisor asks.

    Its job's id, None if only its worker is left; what was recorded before, None if it has ended.
    """
    found, before, job = examine(run, seen), run.read_submission(), seen.get(run.path)
    is_heard = heard_of_s(run) is not None
    is_over = job is not None and job.stage is Stage.ENDED
    is_elsewhere = is_heard and not any(worker.is_alive() for worker in workers(run))
    if before is None or found.job_id is None or is_through(found, before):
        return None, None
    is_wanted = found.state.is_active or found.state.is_waiting
    if not (is_wanted or is_heard or (job is not None and job.stage is Stage.ACTIVE)):
        return None, None
    run.write_submission(replace(before, job_id=found.job_id, cancelled_at=time.time()))
    return (None if is_over and not is_elsewhere else found.job_id), before


def _end_orphan(run: RunDir) -> Cancelled:
    """Stop a worker whose job is over: its supervisor was killed, and nobody else ends it."""
    has_heard = any(worker.terminate() for worker in workers(run))
    return Cancelled(
        run, has_heard, f"its job is over; {ASKED if has_heard else 'it ended just now'}"
    )


def workers(run: RunDir) -> list[Process]:
    """Who may be working on the run, each process once."""
    submission, heartbeat = run.read_submission(), run.read_heartbeat()
    named = [submission.worker if submission else None, heartbeat.process if heartbeat else None]
    return list(dict.fromkeys(worker for worker in named if worker is not None))


def not_active(run: RunDir, state: State) -> Cancelled:
    """There was nothing to cancel."""
    return Cancelled(run, False, f"not active ({state.lower()})")


def failed(run: RunDir, error: VmcJobError) -> Cancelled:
    """It goes on."""
    return Cancelled(run, True, "not cancelled", error)
