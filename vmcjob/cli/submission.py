"""Submission of plans to a scheduler, or a dry run; shared by submit, resume and rerun."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import INTERRUPTED
from vmcjob.cli.before import require_folder, say_before
from vmcjob.cli.hints import DRY, names_of, say_next, suggest, typed, where_runs_are
from vmcjob.cli.options import AsJson, RunsRoot, SiteProfile, resolve_site
from vmcjob.cli.preview import NOTHING, Preview, preview, show_preview
from vmcjob.cli.screen import fold, put_drawn, put_json, put_table, say
from vmcjob.cli.text import Cell, Heading, format_point, relative
from vmcjob.errors import IncompleteError, UsageError, VmcJobError, combine
from vmcjob.resources import Request

if TYPE_CHECKING:
    from vmcjob.plan import Plan, Task
    from vmcjob.scheduler import Receipt, SubmissionOptions
    from vmcjob.scheduler.registry import AnyBackend

SOME_FAILED = IncompleteError.exit_code
UNANSWERED = (
    "the batch system did not answer ({}). Not known: whether runs are queued or running, the "
    "largest array, and whether a job without mem gets all memory of its node"
)


IsLocal = Annotated[
    bool, typer.Option("--local", help="Run on this machine, whatever the site says.")
]
MaxParallel = Annotated[
    int | None,
    typer.Option(
        "--max-parallel", min=1, metavar="N", help="Run at most N at a time. [default: the site's]"
    ),
]
IsFollowed = Annotated[
    bool, typer.Option("--follow", "-f", help="Show progress; ^C leaves the runs alone.")
]
IsDry = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Print what would be submitted, and stop.")
]
IsChecked = Annotated[
    bool,
    typer.Option("--check", help="With -n: also ask the cluster what it would take, and when."),
]


@dataclass(frozen=True)
class CommandOptions:
    """The options of each command that submits."""

    site: SiteProfile = None
    runs: RunsRoot = None
    is_local: IsLocal = False
    max_parallel: MaxParallel = None
    is_followed: IsFollowed = False
    as_json: AsJson = False
    is_dry: IsDry = False
    is_checked: IsChecked = False
    request: Request = field(default_factory=Request)

    @property
    def where(self) -> str:
        """The options that lead other commands to the same runs."""
        return where_runs_are(self.site, self.runs)


def submit_plans(
    folders: "Mapping[Path, list[Plan]]", options: CommandOptions, *, is_restart: bool = False
) -> None:
    """Start the plans' runs, each in its runs root, or show what would be started."""
    receipt, refusals = start_plans(folders, options, is_restart=is_restart)
    look_after(receipt, options)
    if refusals:
        raise combine(refusals)


def start_plans(
    folders: "Mapping[Path, list[Plan]]",
    options: CommandOptions,
    *,
    is_restart: bool = False,
    sequel: Sequence[str] = (),
) -> "tuple[Receipt, list[VmcJobError]]":
    """Start the plans' runs or show what would be started; in a dry run, also what is refused.

    Args:
        folders: the plans for each runs root.
        options: of the command.
        is_restart: from the first step.
        sequel: a command that a job of a cluster runs when its run has finished.
    """
    from vmcjob import scheduler
    from vmcjob.site import find_profile

    site = resolve_site(options.site, options.runs)
    profile = find_profile(options.site, os.environ)
    for root, plans in folders.items():
        require_folder(root)
        scheduler.require_starts(root, plans)
    receipts: list[Receipt] = []
    previews: list[Preview] = []
    try:
        for root, plans in folders.items():
            wanted = scheduler.SubmissionOptions(
                *(root, site, options.request, options.max_parallel, is_restart),
                profile=str(profile or "the default profile"),
                sequel=tuple(sequel),
            )
            receipt, jobs = _start(plans, wanted, options)
            receipts.append(receipt)
            previews.append(jobs)
            if options.as_json:
                continue
            show_preview(receipt, _tasks(plans), jobs) if options.is_dry else _show(receipt, plans)
    finally:  # report the submitted runs, even if an error stopped the rest
        if options.as_json and receipts:
            put_json(_document(_join(receipts), previews, is_dry=options.is_dry))
    return _join(receipts), [refusal for jobs in previews for refusal in jobs.refusals()]


def _start(
    plans: "list[Plan]", wanted: "SubmissionOptions", options: CommandOptions
) -> "tuple[Receipt, Preview]":
    """The receipt for the runs of one root; in a dry run, also the jobs of a batch system."""
    from vmcjob import scheduler
    from vmcjob.rundir import LOCAL

    backend = scheduler.choose(wanted.site.scheduler, options.is_local)
    if options.is_checked and (backend.name == LOCAL or not options.is_dry):
        is_here = backend.name == LOCAL
        why = "the runs stay on this machine" if is_here else "goes with -n, which writes nothing"
        raise UsageError(f"--check asks a cluster what it would do: {why}")
    if options.is_dry:
        receipt, jobs = _draft(backend, plans, wanted, is_checked=options.is_checked)
    else:
        say_before(backend, plans, wanted)
        receipt, jobs = scheduler.submit(backend, plans, wanted), NOTHING
    return scheduler.take_over(receipt, plans, is_dry=options.is_dry), jobs


def _draft(
    backend: "AnyBackend", plans: "list[Plan]", wanted: "SubmissionOptions", *, is_checked: bool
) -> "tuple[Receipt, Preview]":
    """The receipt and the jobs of a dry run, which does not wait long for a batch system."""
    from vmcjob import scheduler

    jobs = scheduler.Watch()
    with scheduler.hurried() as hurry:
        say_before(backend, plans, wanted)
        draft = scheduler.draft(backend, plans, wanted, jobs.look)
        answers = scheduler.check(backend, draft.batches) if is_checked else ()
    if error := hurry.silence or jobs.error:
        say(fold(f"warning: {UNANSWERED.format(error)}", sys.stderr))
    return draft.receipt, preview(draft.batches, answers)


def _join(receipts: "Sequence[Receipt]") -> "Receipt":
    """The receipts of several runs roots as one."""
    from vmcjob.scheduler import Receipt

    submitted = tuple(item for receipt in receipts for item in receipt.submitted)
    skipped = tuple(item for receipt in receipts for item in receipt.skipped)
    launchers = tuple(item for receipt in receipts for item in receipt.launchers)
    return Receipt(submitted, skipped, launchers)


def look_after(receipt: "Receipt", options: CommandOptions) -> None:
    """Print errors; follow the runs, or say how to follow them."""
    errors = [item.error for item in receipt.skipped if item.error]
    for words in dict.fromkeys(map(str, errors)):
        say(words)
    if options.is_followed and not options.is_dry:
        _follow(receipt, options.where, options.as_json)
    elif not options.as_json and not errors:  # the last line is the error
        _hint(receipt, options)
    if errors:
        raise typer.Exit(combine(errors).exit_code)


def _show(receipt: "Receipt", plans: "list[Plan]") -> None:
    """One line per run, in the order of the specs."""
    submitted = {item.run_id: item.run for item in receipt.submitted}
    skipped = {item.run_id: item for item in receipt.skipped}
    tasks = _tasks(plans)
    is_seed_shown = len({task.seed for task in tasks.values()}) > 1
    columns = [
        Heading("run"),
        Heading("point", dispensable=2),
        Heading("seed", "right", dispensable=3),
    ]
    columns += [Heading("result"), Heading("directory", dispensable=1)]
    rows = [
        [
            Cell(run_id),
            Cell(format_point(task.point)),
            Cell(str(task.seed) if is_seed_shown else ""),
            Cell("submitted", "green")
            if run_id in submitted
            else Cell(f"skipped: {skipped[run_id].reason}", "dim"),
            Cell(relative((submitted.get(run_id) or skipped[run_id].run).path)),
        ]
        for run_id, task in tasks.items()
    ]
    put_table(columns, rows)
    for item in receipt.submitted:
        if item.aside is not None:
            say(f"put aside: {relative(item.aside.path)}", "dim")


def _document(
    receipt: "Receipt", previews: "Sequence[Preview]", *, is_dry: bool
) -> dict[str, Any]:  # a JSON document
    """What `submit --json` prints."""
    submitted = [
        {"run_id": item.run_id, "job_id": item.job_id, "run_dir": str(item.run.path.absolute())}
        | ({"put_aside": str(item.aside.path.absolute())} if item.aside else {})
        for item in receipt.submitted
    ]
    skipped = [
        {"run_id": item.run_id, "reason": item.reason, "run_dir": str(item.run.path.absolute())}
        for item in receipt.skipped
    ]
    dry = {"dry_run": True} if is_dry else {}
    jobs = [job for jobs in previews for job in jobs.document()]
    runs = {"schema_version": 1, "submitted": submitted, "skipped": skipped}
    return runs | dry | ({"jobs": jobs} if jobs else {})


def _hint(receipt: "Receipt", options: CommandOptions) -> None:
    """Print the next useful commands."""
    where = options.where
    if options.is_dry:
        suggest(typed(without=DRY))
        return
    states = [(item.run, item.reason.partition(";")[0]) for item in receipt.skipped]
    going = [run for run, state in states if state in ("queued", "running")]
    going = [item.run for item in receipt.submitted] or going
    ended = [run for run, state in states if state == "finished"]
    if going:
        watch = f"status -w{where}", f"logs -f{where} {going[0].path.name}"
        say_next(*watch, f"cancel{where} {names_of(going)}")
    else:
        which = names_of(ended, are_finished=True)
        longer = [f"resume{where} {which} --more-steps 1000"] if ended else []
        say_next(f"status{where}", f"aggregate{where}", *longer)


def _follow(receipt: "Receipt", where: str, as_json: bool) -> None:
    """Watch the runs until all have ended; ^C stops watching, not the runs."""
    from vmcjob.cli.follow import follow
    from vmcjob.cli.status import draw_status

    skipped = [item for item in receipt.skipped if item.error is None]
    runs = [item.run for item in (*receipt.submitted, *skipped)]
    try:
        ended = follow(runs)
    except KeyboardInterrupt:
        say(f"\ndetached; the runs go on: vmcjob status -w{where}")
        raise typer.Exit(INTERRUPTED) from None
    put_drawn(draw_status(ended), is_talk=as_json)
    receipt.wait()  # afterwards, other processes may move or remove the runs
    if any(row.state != "FINISHED" for row in ended):
        raise typer.Exit(SOME_FAILED)


def _tasks(plans: "list[Plan]") -> "Mapping[str, Task]":
    """The planned tasks by run id, each once."""
    return {task.run_id: task for plan in plans for task in plan.tasks}
