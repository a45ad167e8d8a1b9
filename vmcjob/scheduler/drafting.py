"""The decision which runs are submitted, and as which batches; nothing is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vmcjob.errors import RunDirError
from vmcjob.plan import Plan, Task
from vmcjob.rundir import RunDir
from vmcjob.runs.status import STALE_S, Queue, Stage, State, examine, heard_of_s
from vmcjob.scheduler.chain import in_order, why_in_vain
from vmcjob.scheduler.companions import is_through
from vmcjob.scheduler.contract import Batch, SubmissionOptions
from vmcjob.scheduler.groups import drop_stopped, form_groups
from vmcjob.scheduler.queue import look
from vmcjob.scheduler.receipt import UNUSABLE, Receipt, Skipped, Submitted, reason_to_skip
from vmcjob.scheduler.records import distinct, make_record
from vmcjob.scheduler.registry import AnyBackend

WITH_OTHERS = "with other options, which it keeps; vmcjob cancel it first to change them"
HEARD_OF = (
    "{}, but its worker was heard of {:.0f} s ago; "
    "submit it again when it has been silent for {:g} s"
)


@dataclass(frozen=True)
class Draft:
    """The effect that a submission would have now."""

    receipt: Receipt
    batches: tuple[Batch, ...]


def draft(
    backend: AnyBackend,
    plans: Sequence[Plan],
    options: SubmissionOptions,
    ask: Callable[[Sequence[RunDir]], Queue] = look,
) -> Draft:
    """Decide what to submit; writes nothing, and works without the backend's programs.

    `ask` gives the states of existing runs; SchedulerError by default if nobody answers.
    """
    options = options.absolute()
    backend.require(options, plans)
    tasks = {RunDir(options.root / name): planned for name, planned in distinct(plans).items()}
    seen = ask([run for run in tasks if run.exists])
    submitted: list[Submitted] = []
    skipped: list[Skipped] = []
    for run, (source, task) in tasks.items():
        reason = None
        try:
            if run.exists:
                run.require(make_record(source, task))
                reason = _reason_to_skip(backend, run, task, seen, options)
        except RunDirError as error:
            skipped.append(Skipped(run, run.path.name, UNUSABLE, error))
            continue
        if reason is None:
            submitted.append(Submitted(run, run.path.name, None))
        else:
            skipped.append(Skipped(run, run.path.name, reason))
    groups = form_groups(backend.name, options.root, plans)
    going, stopped = drop_stopped(options.root, groups, [item.run for item in submitted])
    wanted, vain = _without_vain(backend, {run: tasks[run][1] for run in going}, seen)
    submitted = [item for item in submitted if item.run in wanted]
    skipped += [*stopped, *vain]
    batches = tuple(backend.draft(options, wanted)) if wanted else ()
    return Draft(Receipt(tuple(submitted), tuple(skipped)), batches)


def _without_vain(
    backend: AnyBackend, wanted: Mapping[RunDir, Task], seen: Queue
) -> tuple[dict[RunDir, Task], list[Skipped]]:
    """The runs to submit, in the order of their waits, and runs that would wait in vain."""
    going: dict[RunDir, Task] = {}
    vain: list[Skipped] = []
    for run in in_order(wanted):
        reason = why_in_vain(run, wanted[run], tuple(going), seen, backend.name)
        if reason is None:
            going[run] = wanted[run]
        else:
            vain.append(Skipped(run, run.path.name, reason))
    return going, vain


def _reason_to_skip(
    backend: AnyBackend, run: RunDir, task: Task, seen: Queue, options: SubmissionOptions
) -> str | None:
    """The reason why a run is not submitted now; None if it is."""
    found, job, submission = examine(run, seen), seen.get(run.path), run.read_submission()
    reason = reason_to_skip(found, options.is_restart)
    if submission is None or is_through(found, submission):
        return reason
    if reason is None and job is not None and job.stage is Stage.ACTIVE:
        # A clock that is wrong makes a worker look dead; two of them would be worse than none.
        return f"{found.state.lower()}, but its job {job.job_id} goes on; vmcjob cancel it first"
    if reason is None and (silence_s := heard_of_s(run)) is not None:
        return HEARD_OF.format(found.state.lower(), silence_s, STALE_S)
    is_ours = submission.scheduler == backend.name
    is_kept = is_ours and found.state in (State.QUEUED, State.RUNNING)
    return f"{reason} {WITH_OTHERS}" if is_kept and backend.is_other(run, task, options) else reason
