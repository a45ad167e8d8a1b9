"""Relaxation for `submit` and `resume`: the run at the next geometry, or one after the other."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.geometries import known_paths, latest_of, say_geometry, show_relaxation
from vmcjob.cli.options import resolve_site
from vmcjob.cli.screen import put_json, say
from vmcjob.cli.submission import CommandOptions, look_after, start_plans
from vmcjob.errors import (
    IncompleteError,
    RunDirError,
    SchedulerError,
    UsageError,
    VmcJobError,
    combine,
)

if TYPE_CHECKING:
    from vmcjob.plan import Plan, Task
    from vmcjob.rundir import RunDir
    from vmcjob.rundir.relaxations import Relaxation
    from vmcjob.scheduler import Receipt


REPLACED = (
    "another path from the same first run was submitted later, with other relax.fixed or "
    "relax.train_steps; submit the spec of this path again to go on along it"
)


def relax(plans: "Sequence[Plan]", root: Path, options: CommandOptions) -> None:
    """Go along the path of a spec with a table [relax]; UsageError with other specs beside it."""
    from vmcjob.relaxation.path import begin

    if len(plans) > 1:
        named = next(plan.source for plan in plans if plan.relax)
        raise UsageError(f"{named}: has a table [relax], so its runs follow; submit it by itself")
    (plan,) = plans
    (task,) = plan.tasks
    if plan.relax is None:
        raise RuntimeError("there is no relaxation in this plan")
    source = os.path.abspath(plan.source)  # a path is also resumed from other folders
    _go_along(begin(task, source, plan.relax, root), root, options, task)


def paths_among(
    chosen: "Sequence[RunDir]",
) -> "tuple[list[tuple[Relaxation, Path]], list[RunDir]]":
    """The paths that runs belong to, each with its runs root, and the other runs.

    A path that has ended, or that another one has replaced, is left alone if there is anything else
    to go on with.
    """
    from vmcjob.relaxation.path import ending

    found = known_paths(chosen)
    known = {root / run_id for path, root in found for run_id in path.run_ids}
    others = [run for run in chosen if run.path.absolute() not in known]
    current = latest_of(found)
    going = [(path, root) for path, root in current if ending(path) is None]
    return (current if not going and not others else going), others


def go_along_paths(paths: "Sequence[tuple[Relaxation, Path]]", options: CommandOptions) -> None:
    """Go on with each path; what stops one of them does not stop the others."""
    errors: list[VmcJobError] = []
    for path, root in paths:
        try:
            _go_along(path, root, options)
        except VmcJobError as error:
            errors.append(error)
    if errors:
        raise combine(errors)


def _go_along(
    path: "Relaxation", root: Path, options: CommandOptions, first: "Task | None" = None
) -> None:
    """Start the run at the next geometry; with --follow, go on until the path ends."""
    from vmcjob.relaxation.path import advance, ending, go_on

    if options.as_json and options.is_followed:
        raise UsageError("--json shows one submission, and --follow makes several; choose one")
    n_told = 0
    while True:
        _require_latest(path, root, options)
        path = advance(path, root) if options.is_dry else go_on(path, root, first is not None)
        if not options.as_json:
            n_told = say_geometry(path, n_told)
        if ending(path) is not None:
            _forget_sequels(path, root, options)
            _end(path, options)
            return
        receipt = _start_next(path, root, options, first)
        if options.is_dry or not options.is_followed:
            break
        if not receipt.submitted and advance(path, root) == path:
            run_id = path.last.run_id
            again = f"vmcjob rerun{options.where} {run_id}"
            raise RunDirError(f"{run_id}: has no results to go on from; {again} makes them")
    if not options.as_json and not options.is_dry:
        _say_further(path, root, options)


def _start_next(
    path: "Relaxation", root: Path, options: CommandOptions, first: "Task | None"
) -> "Receipt":
    """Start the run at the last geometry of a path, and look after the run."""
    from vmcjob.relaxation.path import plan_of

    _require_cluster(path, root, options)
    plans = {root: [plan_of(path, root, first)]}
    turn = nullcontext() if options.is_dry else path.turn(root)
    with turn, _deaf_to_termination(options):
        _require_latest(path, root, options)  # looking for the geometry may have taken minutes
        receipt, refusals = start_plans(plans, options, sequel=_sequel(path, root, options))
        if not refusals and not any(item.error for item in receipt.skipped):
            _take_over(path, root, options)
    look_after(receipt, options)
    if refusals:
        raise combine(refusals)
    return receipt


def _say_further(path: "Relaxation", root: Path, options: CommandOptions) -> None:
    """Tell how the path goes on after its last run."""
    place = f"geometry {len(path.geometries)} of at most {path.max_steps}"
    again = f"vmcjob resume{options.where} {path.last.run_id} goes on, or with -f to the end"
    if _is_job(root, path.last.run_id):
        again = f"its job submits the run at the next geometry; if not, {again}"
    say(f"{place}; when its run has finished, {again}", "dim")


def _require_latest(path: "Relaxation", root: Path, options: CommandOptions) -> None:
    """RunDirError if another path from the same first run was submitted later: that one goes on."""
    from vmcjob.relaxation.path import ending
    from vmcjob.rundir.relaxations import replacement

    if (other := replacement(path, root)) is not None:
        if not options.is_dry and ending(path) is None:
            _note_replaced(path, root, other)
        raise RunDirError(f"{_existing(path, root)[-1].path.name}: {REPLACED}")


def _existing(path: "Relaxation", root: Path) -> "list[RunDir]":
    """The runs of a path that exist, the first run in any case."""
    from vmcjob.rundir import RunDir

    first, *others = (RunDir(root / run_id) for run_id in path.run_ids)
    return [first, *(run for run in others if run.exists)]


def _take_over(path: "Relaxation", root: Path, options: CommandOptions) -> None:
    """Record that a run of the path was taken, and name the paths that end because of the run."""
    from vmcjob.relaxation.path import ending, record_submission
    from vmcjob.rundir.relaxations import paths_beside, replacement

    going = [one for one in paths_beside(path, root) if replacement(one, root) is None]
    if not options.is_dry:
        record_submission(path, root)
    _forget_sequels(path, root, options)
    verb = "would replace" if options.is_dry else "replaces"
    for other in going:
        if ending(other) is None:
            if not options.is_dry:
                _note_replaced(other, root, path)
            say(f"{verb} the path to {other.last.run_id}, which begins with the same run")


def _note_replaced(path: "Relaxation", root: Path, other: "Relaxation") -> None:
    """Have `status` tell beside the last run of a path that another path goes on.

    The first run also belongs to the path that goes on, so it gets no such note.
    """
    from vmcjob.rundir import Sequel

    _, *runs = _existing(path, root)
    for run in runs[:-1]:
        run.clear_sequel()
    for run in runs[-1:]:
        run.write_sequel(Sequel(replaced_by=other.last.run_id))


def _forget_sequels(path: "Relaxation", root: Path, options: CommandOptions) -> None:
    """Remove records of jobs that could not submit the next run: the path needs none of them."""
    from vmcjob.rundir import RunDir

    for run_id in path.run_ids if not options.is_dry else ():
        RunDir(root / run_id).clear_sequel()


@contextmanager
def _deaf_to_termination(options: CommandOptions) -> Iterator[None]:
    """While inside, a submission to a cluster ignores SIGTERM, and so do programs that it starts.

    The job that submits the next run may be about to end; a call of sbatch must not be cut short.
    Workers on this machine must hear the signal.
    """
    if not _is_for_cluster(options):
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_for_cluster(options: CommandOptions) -> bool:
    """Whether runs would be submitted to a cluster."""
    from vmcjob import scheduler
    from vmcjob.rundir import LOCAL

    site = resolve_site(options.site, options.runs)
    return scheduler.choose(site.scheduler, options.is_local).name != LOCAL


def _is_job(root: Path, run_id: str) -> bool:
    """Whether a run was submitted to a cluster."""
    from vmcjob.rundir import LOCAL, RunDir

    submission = RunDir(root / run_id).read_submission()
    return submission is not None and submission.scheduler != LOCAL


def _require_cluster(path: "Relaxation", root: Path, options: CommandOptions) -> None:
    """SchedulerError if a run was a job of a cluster, and this host can submit no jobs.

    A compute host may lack the programs of the batch system, and must not work on the run itself.
    """
    jobs = [run_id for run_id in path.run_ids if _is_job(root, run_id)]
    if options.is_local or options.is_dry or not jobs:
        return
    if not _is_for_cluster(options):
        why = "was a job of a cluster, and this host cannot submit jobs"
        raise SchedulerError(f"{jobs[-1]}: {why}; go on where sbatch is on PATH, or with --local")


def _sequel(path: "Relaxation", root: Path, options: CommandOptions) -> list[str]:
    """The command that goes on along the path after the run at its last geometry."""
    from vmcjob.scheduler.command import python_command
    from vmcjob.site import find_profile

    profile = find_profile(options.site, os.environ)
    site = [f"--site={profile.absolute()}"] if profile else []
    where = [f"--runs={root.absolute()}", *site, *options.request.flags()]
    return [*python_command(), "resume", *where, path.last.run_id]


def _end(path: "Relaxation", options: CommandOptions) -> None:
    """Show the path; IncompleteError if it ends without a minimum."""
    from vmcjob.cli.geometries import document_of, ending_in_words
    from vmcjob.relaxation.path import Ending, ending

    if options.as_json:
        none = {"schema_version": 1, "submitted": [], "skipped": []}
        put_json(none | {"relaxations": [document_of(path)]})
    else:
        show_relaxation(path)
    if ending(path) in (Ending.OUT_OF_STEPS, Ending.TOO_NOISY):
        raise IncompleteError(f"{path.name}: {ending_in_words(path)}")
