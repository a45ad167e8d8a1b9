"""From specs to runs: submit, resume what has stopped half-way, rerun what has ended."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.changes import say_changes
from vmcjob.cli.complete import complete_runs
from vmcjob.cli.expand import expand_options
from vmcjob.cli.longer import Extension, MoreTraining
from vmcjob.cli.newest import find_newer
from vmcjob.cli.options import SomeSelectors, SpecPaths, resolve_site, select_runs
from vmcjob.cli.overrides import SpecChanges
from vmcjob.cli.relax import go_along_paths, paths_among, relax
from vmcjob.cli.screen import say
from vmcjob.cli.specs import read_plans, say_doubts
from vmcjob.cli.submission import CommandOptions, submit_plans
from vmcjob.errors import UsageError

if TYPE_CHECKING:
    from vmcjob.plan import Plan
    from vmcjob.rundir import RunDir
    from vmcjob.runs.status import RunStatus

MoreSteps = Annotated[
    int | None,
    typer.Option(
        "--more-steps",
        min=1,
        metavar="N",
        help="Evaluate finished runs for N steps more, each in a new run with all that it has.",
    ),
]
TargetError = Annotated[
    float | None,
    typer.Option(
        "--target-error",
        metavar="E",
        help="The same until the error is E hartree; for --more-steps at most, or 4 times as long "
        "as it should take.",
    ),
]
MoreTrainingSteps = Annotated[
    int | None,
    typer.Option(
        "--more-training",
        min=1,
        metavar="N",
        help="Train finished runs on for N steps, each in a new run that begins where it ended, "
        "and evaluate that.",
    ),
]


After = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="RUN",
        help="Begin when that run has finished; may be given again.",
        autocompletion=complete_runs,
    ),
]


@app.command(cls=Command)
@expand_options
def submit(
    specs: SpecPaths, changes: SpecChanges, options: CommandOptions, after: After = None
) -> None:
    """Start the runs of the specs and return at once.

    Submitting twice is harmless: what is queued, running or finished is left alone, and what was
    interrupted continues. With a table [relax], this starts the run at the next geometry of the
    path, or with --follow one after the other.
    """
    root = resolve_site(options.site, options.runs).runs
    _require_no_runs(specs, root, options.where)
    chosen = select_runs(after, options.site, options.runs) if after else []
    plans = read_plans(specs, changes)
    for plan in plans:
        say_doubts(plan)
        say_changes(plan, root)
    if after:
        plans = [_plan_after(plan, root, chosen) for plan in plans]
    if any(plan.relax for plan in plans):
        relax(plans, root, options)
    else:
        submit_plans({root: plans}, options)


def _require_no_runs(specs: list[Path], root: Path, where: str) -> None:
    """UsageError if the name of a run stands in place of a spec."""
    from vmcjob.rundir import RunDir

    for path in specs:
        if RunDir(root / path.name).exists and not path.is_file():
            command = f"vmcjob resume{where} {path.name}"
            raise UsageError(f"{path}: is a run, not a spec; {command} goes on with it")


@app.command(cls=Command)
@expand_options
def resume(
    selectors: SomeSelectors,
    options: CommandOptions,
    more_steps: MoreSteps = None,
    target_error: TargetError = None,
    more_training: MoreTrainingSteps = None,
) -> None:
    """Go on with runs that stopped, or with finished ones for longer.

    Their own directories say what they compute; the spec file is not read again. What is queued,
    running or finished is left alone, unless --more-steps or --target-error asks for a smaller
    error bar, or --more-training for a lower energy.
    """
    chosen = select_runs(selectors, options.site, options.runs)
    is_longer = more_steps is not None or target_error is not None
    if more_training is None and not is_longer:
        paths, others = paths_among(chosen)
        if (options.is_followed or options.as_json) and len(paths) + bool(others) > 1:
            names = ", ".join(path.last.run_id for path, _ in paths)
            raise UsageError(f"--follow and --json are for one relaxation by itself, here {names}")
        if others or not chosen:
            submit_plans(plans_again(others), options)
        go_along_paths(paths, options)
        return
    if more_training is not None and is_longer:
        raise UsageError(
            "--more-training makes a new state, which --more-steps and --target-error cannot go on "
            "with before it is there; train first, then evaluate for longer"
        )
    extension = (
        MoreTraining(more_training) if more_training else Extension(more_steps, target_error)
    )
    chosen = _newest(chosen, selectors)
    _require_finished(chosen, options)
    submit_plans(plans_again(chosen, extension), options)


@app.command(cls=Command)
@expand_options
def rerun(selectors: SomeSelectors, options: CommandOptions) -> None:
    """Begin runs anew, from their first step.

    Earlier results are moved to a directory below .old of the runs root. The run directories
    contain the specs. Runs that are queued or running are refused.
    """
    chosen = select_runs(selectors, options.site, options.runs)
    _refuse_active(chosen, options)
    submit_plans(plans_again(chosen), options, is_restart=True)


def _plan_after(plan: "Plan", root: Path, chosen: "list[RunDir]") -> "Plan":
    """The plan, whose runs begin after the chosen runs have finished."""
    for run in chosen:
        if run.path.absolute().parent != root.absolute():
            where = f"is not in {root}, where the new runs are to be"
            raise UsageError(f"--after {run.path.name}: {where}; choose the same --runs for both")
    after = tuple(run.path.name for run in chosen)
    return replace(plan, tasks=tuple(replace(task, after=after) for task in plan.tasks))


def _examine(chosen: "list[RunDir]", options: CommandOptions) -> "list[RunStatus]":
    """The states of runs; SchedulerError without an answer, which a dry run does not wait for."""
    from vmcjob import scheduler
    from vmcjob.runs.status import examine

    with scheduler.hurried() if options.is_dry else nullcontext():
        queue = scheduler.look(chosen)
    return [examine(run, queue) for run in chosen]


def _refuse_active(chosen: "list[RunDir]", options: CommandOptions) -> None:
    """UsageError if something will still happen to one of the runs."""
    rows = _examine(chosen, options)
    if active := [row for row in rows if row.state.is_active]:
        words = (f"{row.run_id}: {row.state.lower()}; cancel it first, or wait" for row in active)
        raise UsageError("\n".join(words))


def _newest(chosen: "list[RunDir]", selectors: Sequence[str]) -> "list[RunDir]":
    """The chosen runs without those that another chosen run continues or has trained on from.

    A run whose id is among the selectors stays, although another run has trained on from it.
    """
    newer = find_newer(chosen, selectors)
    continued = {run.continues for run in chosen}
    for run_id in (run_id for run_id in newer if run_id not in continued):
        say(f"left as it is: {run_id}  trained on in {newer[run_id]}", "dim")
    return [run for run in chosen if run.path.name not in newer.keys() | continued]


def _require_finished(chosen: "list[RunDir]", options: CommandOptions) -> None:
    """UsageError if one of the runs has steps left to do."""
    from vmcjob.runs.status import State

    rows = _examine(chosen, options)
    if unfinished := [row for row in rows if row.state is not State.FINISHED]:
        words = (
            "--more-steps, --more-training and --target-error are for finished runs: without them, "
            "resume goes on where this one is"
        )
        raise UsageError(
            "\n".join(f"{row.run_id}: {row.state.lower()}; {words}" for row in unfinished)
        )


def plans_again(
    chosen: "list[RunDir]", extension: Extension | MoreTraining | None = None
) -> "dict[Path, list[Plan]]":
    """What runs compute as their own directories describe it, by the runs root of each."""
    folders: dict[Path, list[Plan]] = {}
    for run in chosen:
        plan = _plan_again(run, extension)
        folders.setdefault(run.path.absolute().parent, []).append(plan)
    return folders


def _plan_again(run: "RunDir", extension: Extension | MoreTraining | None) -> "Plan":
    """The plan of one run, or of one that goes on from it, from its own directory."""
    from vmcjob.plan import Plan, Task
    from vmcjob.spec import load_resolved

    record = run.read_record()
    if record.run_id != run.path.name:
        words = f"was {record.run_id} and has been put aside or renamed; it can only be looked at"
        raise UsageError(f"{run.path}: {words}")
    spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    who = record.run_id, record.name, record.point, record.seed
    after, pool = run.comes_after, record.pool_sha256
    origins = run.read_origins()
    task = Task(*who, spec, record.science_sha256, None, after, pool, origins)
    chosen = extension.make_longer(run, task) if extension else task
    return Plan(record.source, (chosen,), is_whole=False)
