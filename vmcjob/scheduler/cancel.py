"""Taking runs back: out of a queue, or stopped at a checkpoint."""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from vmcjob.errors import RunDirError, SchedulerError, VmcJobError
from vmcjob.rundir import Process, RunDir, Submission
from vmcjob.scheduler import commands, queue
from vmcjob.scheduler.companions import count_others_at_work, is_through
from vmcjob.scheduler.local import queue_lock
from vmcjob.scheduler.receipt import Cancelled
from vmcjob.status import Queue, Stage, State, examine

MAX_JOBS = 100  # that one scancel is told of
ASKED = "asked to stop at its next checkpoint"
_REFUSED = re.compile(r"job id (\w+)")


def cancel(runs: Sequence[RunDir]) -> list[Cancelled]:
    """Take runs out of the queue, or have their workers stop at the next checkpoint.

    What became of each, in the order of the runs: a run that cannot be cancelled is no reason to
    let the others go on. SLURM is asked once for all, and told of a hundred jobs at a time.
    """
    jobs = [run for run in runs if _is_job(run)]
    done = _cancel_jobs(jobs) if jobs else {}
    return [done.get(run) or _cancel_here(run) for run in runs]


def _is_job(run: RunDir) -> bool:
    """Whether a batch system was given the run."""
    submission = run.read_submission()
    return submission is not None and submission.job_name is not None


def _cancel_here(run: RunDir) -> Cancelled:
    """Cancel a run of this machine."""
    try:
        found = examine(run)
        if not found.state.is_active:
            return _not_active(run, found.state)
        with queue_lock(run.path.absolute().parent):
            return _take_back(run)
    except VmcJobError as error:
        return _failed(run, error)


def _take_back(run: RunDir) -> Cancelled:
    """Cancel a run that was active a moment ago; SchedulerError if another host has it."""
    found = examine(run)  # it may have started meanwhile
    if found.state is State.QUEUED:
        run.write_cancellation(None)
        run.clear_submission()
        return Cancelled(run, True, "taken out of the queue")
    workers = _workers(run)
    for worker in filter(Process.is_alive, workers):
        run.write_cancellation(worker)
        if worker.terminate():
            return Cancelled(run, True, ASKED)
    away = [worker.host for worker in workers if worker.is_alive() is None]
    if found.state.is_active and away:
        raise SchedulerError(f"{found.run_id}: runs on {away[0]}; cancel it there")
    return Cancelled(run, False, "ended just now")


def _cancel_jobs(runs: Sequence[RunDir]) -> dict[RunDir, Cancelled]:
    """Have SLURM end the runs' jobs, waiting or not; workers still make their checkpoints."""
    try:
        seen = queue.look(runs)
    except SchedulerError as error:
        return {run: _failed(run, error) for run in runs}
    done: dict[RunDir, Cancelled] = {}
    marked: dict[RunDir, tuple[str, Submission]] = {}  # with what was recorded before
    for run in runs:
        try:
            job_id, before = _mark(run, seen)
        except RunDirError as error:
            done[run] = _failed(run, error)
            continue
        if before is None:
            done[run] = _not_active(run, examine(run, seen).state)
        elif job_id is None:
            done[run] = _end_orphan(run)
        else:
            marked[run] = job_id, before
    return done | _end_marked(marked, seen)


def _end_marked(
    marked: Mapping[RunDir, tuple[str, Submission]], seen: Queue
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
    for error, ids in _scancel(list(ending)):
        for run in (run for job_id in ids for run in ending[job_id]):
            job_id, before = marked[run]
            done[run] = Cancelled(run, True, f"job {job_id} is being cancelled")
            if error is not None:
                done[run] = _failed(run, error)
                with suppress(RunDirError):
                    run.write_submission(before)
    return done


def _mark(run: RunDir, seen: Queue) -> tuple[str | None, Submission | None]:
    """Say that nobody wants the run to come back: before its job ends, for its supervisor asks.

    Its job's id, None if only its worker is left; what was recorded before, None if it has ended.
    """
    found, before, ticket = examine(run, seen), run.read_submission(), seen.get(run.path)
    is_over = ticket is not None and ticket.stage is Stage.ENDED
    if before is None or found.job_id is None or is_through(found, before):
        return None, None
    if not (found.state.is_active or (ticket is not None and ticket.stage is Stage.ACTIVE)):
        return None, None
    run.write_submission(replace(before, job_id=found.job_id, cancelled_at=time.time()))
    return (None if is_over else found.job_id), before


def _end_orphan(run: RunDir) -> Cancelled:
    """Stop a worker whose job is over: its supervisor was killed, and nobody else ends it."""
    has_heard = any(worker.terminate() for worker in _workers(run))
    return Cancelled(
        run, has_heard, f"its job is over; {ASKED if has_heard else 'it ended just now'}"
    )


def _scancel(job_ids: Sequence[str]) -> list[tuple[SchedulerError | None, list[str]]]:
    """Tell SLURM to end jobs; those that it took, and those that it did not, with its words."""
    answers: list[tuple[SchedulerError | None, list[str]]] = []
    for start in range(0, len(job_ids), MAX_JOBS):
        batch = list(job_ids[start : start + MAX_JOBS])
        error, refused = _tell(batch)
        answers.append((None, [job_id for job_id in batch if job_id not in refused]))
        answers.append((error, refused))
    return answers


def _tell(batch: Sequence[str]) -> tuple[SchedulerError | None, list[str]]:
    """One call of scancel: its complaint, and the jobs that it is about."""
    try:
        done = commands.start(["scancel", *batch])
    except SchedulerError as error:
        return error, list(batch)
    if done.returncode == 0:
        return None, []
    words = commands.words(done.stderr) or f"exit {done.returncode}"
    named = [job_id for job_id in _REFUSED.findall(done.stderr) if job_id in batch]
    return SchedulerError(f"scancel: {words}"), named or list(batch)


def _workers(run: RunDir) -> list[Process]:
    """Who may be working on the run, each process once."""
    submission, heartbeat = run.read_submission(), run.read_heartbeat()
    named = [submission.worker if submission else None, heartbeat.process if heartbeat else None]
    return list(dict.fromkeys(worker for worker in named if worker is not None))


def _not_active(run: RunDir, state: State) -> Cancelled:
    return Cancelled(run, False, f"not active ({state.lower()})")


def _failed(run: RunDir, error: VmcJobError) -> Cancelled:
    return Cancelled(run, True, "not cancelled", error)
