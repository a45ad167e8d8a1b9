"""Submission for all backends: make directories, lock, record, hand over."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import Popen

from vmcjob.errors import RunDirError, SchedulerError, VmcJobError
from vmcjob.plan import Plan, Task
from vmcjob.rundir import RunDir, Submission, refresh
from vmcjob.runs.status import Stage, State, examine
from vmcjob.scheduler.chain import waits_of
from vmcjob.scheduler.contract import Answer, Batch, SubmissionOptions
from vmcjob.scheduler.drafting import draft
from vmcjob.scheduler.groups import form_groups, write_groups
from vmcjob.scheduler.lock import queue_lock
from vmcjob.scheduler.queue import look
from vmcjob.scheduler.receipt import UNUSABLE, Receipt, Skipped, reason_to_wait
from vmcjob.scheduler.records import (
    create_missing,
    distinct,
    prepare,
    record_id,
    remove_unused,
    restore,
)
from vmcjob.scheduler.registry import AnyBackend


def check(backend: AnyBackend, batches: Sequence[Batch]) -> Sequence[Answer]:
    """The backend's answer about each batch, refusals too; SchedulerError without an answer."""
    return backend.preflight(batches) if batches else []


def submit(backend: AnyBackend, plans: Sequence[Plan], options: SubmissionOptions) -> Receipt:
    """Submit the plans' runs; finished, running, queued and diverged runs are left alone.

    Each run is recorded before its job exists. A crash in between leaves a run whose job is found
    by its name, or, if the batch system never got the job, a run that the next submission takes.
    """
    options = options.absolute()
    _require_room(check(backend, draft(backend, plans, options).batches))
    tasks = distinct(plans)
    made = create_missing(options.root, tasks)
    with queue_lock(options.root):
        _refresh(options.root, tasks)
        made += create_missing(options.root, tasks)  # removed meanwhile, by a refused submission
        _adopt_jobs(backend, [RunDir(options.root / run_id) for run_id in tasks])
        planned = draft(backend, plans, options)
        _withdraw(backend, [item.run for item in planned.receipt.submitted])
        groups = form_groups(backend.name, options.root, plans)
        write_groups(options.root, groups, are_told_of=options.site.notify is not None)
        done = _Progress(backend, tasks, options.is_restart)
        for batch in planned.batches:
            try:
                done.send(batch)
            except (SchedulerError, RunDirError) as error:
                if not done.job_ids:
                    remove_unused(made)
                    raise
                done.leave(batch.runs, reason_to_wait(backend.title), error)
    submitted = tuple(
        replace(item, job_id=done.job_ids[item.run], aside=done.aside[item.run])
        for item in planned.receipt.submitted
        if item.run in done.job_ids
    )
    return Receipt(submitted, (*planned.receipt.skipped, *done.behind), tuple(done.processes))


def _refresh(root: Path, run_ids: Iterable[str]) -> None:
    """See the runs as they are now: other hosts may have submitted them a moment ago."""
    present = refresh(root)
    for run_id in run_ids:
        if run_id in present:
            RunDir(root / run_id).refresh()


class _Progress:
    """The results of one submission so far."""

    def __init__(
        self, backend: AnyBackend, tasks: Mapping[str, tuple[str, Task]], is_restart: bool
    ) -> None:
        self.job_ids: dict[RunDir, str] = {}
        self.aside: dict[RunDir, RunDir | None] = {}
        self.behind: list[Skipped] = []
        self.processes: list[Popen[bytes]] = []
        self._last_ids: dict[str, str] = {}  # of batches by their names: who comes after waits
        self._backend = backend
        self._tasks = tasks
        self._is_restart = is_restart
        self._now = time.time()

    def send(self, batch: Batch) -> None:
        """Hand over as many of a batch's jobs as are taken."""
        left = {item.run for item in self.behind}
        behind = [run for run in batch.runs if left & set(self._waited_for(run))]
        self.leave(behind, "left for later, as what it waits for is", None)
        batch = batch.of(tuple(run for run in batch.runs if run not in behind))
        if not batch.runs:
            return
        (answer,) = self._backend.preflight([batch])
        if answer.error is not None:
            raise answer.error
        first = batch.first(answer.n_jobs)
        ready = tuple(filter(self._prepare, first.runs))
        after = self._last_ids.get(batch.after or "")
        sent = self._hand_over(first.of(ready), after) if ready else {}
        self.job_ids |= sent
        after = next(iter(sent.values()), after)
        if after is not None:  # what comes after a batch that was not sent follows the one before
            self._last_ids[batch.job_name] = after
        self.leave(
            batch.runs[len(first.runs) :], reason_to_wait(self._backend.title), answer.shortage
        )

    def _waited_for(self, run: RunDir) -> list[RunDir]:
        """The runs that a run waits for."""
        return [run.beside(run_id) for run_id in waits_of(run, self._tasks[run.path.name][1])]

    def leave(self, runs: Iterable[RunDir], reason: str, error: VmcJobError | None) -> None:
        """Record that runs were not submitted, unless this is recorded already."""
        told = {*self.job_ids, *(item.run for item in self.behind)}
        items = (Skipped(run, run.path.name, reason, error) for run in runs if run not in told)
        self.behind += items

    def _prepare(self, run: RunDir) -> bool:
        """Whether the run is ready for its next attempt; if not, only this run is left out."""
        try:
            self.aside[run] = prepare(run, *self._tasks[run.path.name], self._is_restart)
            run.write_waits(self._tasks[run.path.name][1].after)
            run.clear_cancellation()
        except RunDirError as error:
            self.leave([run], UNUSABLE, error)
            return False
        return True

    def _hand_over(self, batch: Batch, after: str | None) -> dict[RunDir, str]:
        """Record the runs' jobs, submit them, record their ids."""
        before = {run: run.read_submission() for run in batch.runs}
        handover = self._backend.submit(batch, after, self._now)
        recorded = tuple(run for run in batch.runs if self._record(run, handover.records[run]))
        if recorded != batch.runs:
            handover.abandon()
            restore(before)
            return self._hand_over(batch.of(recorded), after) if recorded else {}
        try:
            found = dict(handover.complete())
        except (SchedulerError, RunDirError):
            # It may have been taken and the answer been lost: then the record must stand.
            if handover.abandon():
                restore(before)
            raise
        self.processes += handover.processes
        for run, job_id in found.items():
            record_id(run, job_id)
        return found

    def _record(self, run: RunDir, submission: Submission) -> bool:
        """Whether the job was recorded in the run; if not, only this run is left out."""
        waits = waits_of(run, self._tasks[run.path.name][1]) or None
        try:
            run.write_submission(replace(submission, waits_for=waits))
        except RunDirError as error:
            self.leave([run], UNUSABLE, error)
            return False
        return True


def _require_room(answers: Sequence[Answer]) -> None:
    """SchedulerError if a job would be refused or wait for ever, or if no job is taken.

    If some jobs are taken now, the others can be submitted later.
    """
    if errors := [answer.error for answer in answers if answer.error is not None]:
        raise errors[0]
    shortages = [shortage for answer in answers if (shortage := answer.shortage)]
    if shortages and not any(answer.n_jobs for answer in answers):
        raise SchedulerError("\n".join(map(str, shortages)))


def _adopt_jobs(backend: AnyBackend, runs: Sequence[RunDir]) -> None:
    """Adopt jobs that were taken while the answer was lost, or while this program was killed."""
    cut_short = {
        run: submission
        for run in runs
        if (submission := run.read_submission())
        and submission.job_id is None
        and submission.scheduler == backend.name
    }
    seen = look(cut_short)
    for run, submission in cut_short.items():
        job = seen.get(run.path)
        if job and job.job_id and job.stage is not Stage.ENDED:
            backend.adopt(run, submission, job.job_id)
            run.write_submission(replace(submission, job_id=job.job_id))


def _withdraw(backend: AnyBackend, runs: Sequence[RunDir]) -> None:
    """End jobs that wait in vain, before new jobs of the same runs are submitted."""
    waiting = [run for run in runs if (given := run.read_submission()) and given.waits_for]
    seen = look(waiting)
    blocked = [
        run
        for run in waiting
        if (job := seen.get(run.path)) is not None
        and job.stage is Stage.WAITING
        and examine(run, seen).state is State.BLOCKED
    ]
    if blocked:
        backend.cancel(blocked)
