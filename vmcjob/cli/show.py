"""The command `show`: one run in full."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.against import show_against
from vmcjob.cli.app import Command, app
from vmcjob.cli.complete import complete_runs
from vmcjob.cli.options import AsJson, RunsRoot, Selector, SiteProfile, select_run
from vmcjob.cli.origins import all_origins, annotate, describe_options
from vmcjob.cli.screen import draw_table, put_drawn, put_json
from vmcjob.cli.sparkline import energy_facts
from vmcjob.cli.spent import describe_spent, left_words, read_asked
from vmcjob.cli.status import format_step, row_document
from vmcjob.cli.text import (
    Cell,
    Heading,
    align_facts,
    count,
    format_energy,
    format_point,
    format_time,
    make_visible,
)
from vmcjob.errors import RunDirError, SpecError, StoreError, UsageError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.rundir import Record, RunDir
    from vmcjob.runs.status import RunStatus
    from vmcjob.runs.usage import Usage

EVENT_COLUMNS = [
    Heading("when"),
    Heading("event"),
    Heading("host", dispensable=2),
    Heading("pid", "right", dispensable=1),
    Heading("how", "note"),
]


@app.command(cls=Command)
def show(
    selector: Selector,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="RUN",
            help="Show only the keys that differ there.",
            autocompletion=complete_runs,
        ),
    ] = None,
    has_energies: Annotated[
        bool, typer.Option("--energy", help="Draw the energies of its steps, in lines of text.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show all about one run: attempts, versions, spec, script.

    Each value of the spec has its origin beside it: a line of the spec file, a flag, or the
    default.
    """
    from vmcjob.runs.status import examine
    from vmcjob.scheduler import Watch

    if has_energies and (as_json or against is not None):
        raise UsageError("--energy draws lines for people; leave --json and --against out")
    run = select_run(selector, site, runs)
    if against is not None:
        show_against(run, select_run(against, site, runs), as_json=as_json)
        return
    jobs = Watch()
    queue = jobs.look([run])
    row, record = examine(run, queue), run.read_record()
    errors: list[VmcJobError] = [jobs.error] if jobs.error else []
    if as_json:
        put_json(_document(row, record, errors))
    else:
        job = queue.get(run.path)
        more = {"left": _left(row, job.started_at if job else None)}
        more |= _energies(run, errors) if has_energies else {}
        put_drawn("\n\n".join(_sections(row, record, more, errors)))
    if errors:
        raise combine(errors)


def _energies(run: "RunDir", errors: list[VmcJobError]) -> dict[str, str]:
    """The lines of the energies; none if the results cannot be read, which is an error."""
    try:
        return energy_facts(run)
    except StoreError as error:
        errors.append(error)
        return {}


def _document(
    row: "RunStatus", record: "Record", errors: list[VmcJobError]
) -> dict[str, Any]:  # JSON
    """The output of `show --json`."""
    from vmcjob.document import Document
    from vmcjob.runs.budget import group_of
    from vmcjob.runs.usage import spent

    run = row.run
    outcome, submission, script = run.read_outcome(), run.read_submission(), _read_script(run)
    environment = run.read_environment()
    spec, origins = None, None
    try:
        spec = Document.parse(text := run.read_spec_text(), str(run.spec_path)).tables
        origins = all_origins(text, run.read_origins())
    except (RunDirError, SpecError) as error:
        errors.append(error)
    return {
        "schema_version": 1,
        **row_document(row),
        **{key: getattr(record, key) for key in ("source", "created", "vmcjob_version")},
        "science_sha256": record.science_sha256,
        "outcome": outcome and asdict(outcome),
        "submission": submission and asdict(submission),
        "usage": (used := read_usage(row)) and asdict(used),
        "spent": asdict(spent(run.read_attempts(), submission)),
        "group": (group := group_of(run)) and asdict(group),
        "attempts": run.read_attempts(),
        "provenance": run.read_provenance(),
        "spec": spec,
        "origins": origins,
        "script": script and script[1],
        "environment": None if environment is None else _variables(environment),
    }


def _sections(
    row: "RunStatus", record: "Record", more: dict[str, str], errors: list[VmcJobError]
) -> Iterator[str]:
    """The sections of `show`; empty ones are left out."""
    run = row.run
    yield make_visible(align_facts(run_facts(row, record) | more))
    if attempts := run.read_attempts():
        yield f"# attempts\n{_draw_attempts(attempts)}"
    if provenance := run.read_provenance():
        yield make_visible(f"# provenance\n{align_facts(provenance_facts(provenance))}")
    try:
        spec = annotate(run.read_spec_text().rstrip(), run.read_origins())
        yield make_visible(f"# {run.spec_path.name}\n{spec}")
    except RunDirError as error:
        errors.append(error)
    if options := describe_options(run):
        yield make_visible(f"# who gave the options of its job\n{options}")
    if script := _read_script(run):
        yield make_visible(f"# script of its job: {script[0]}\n{script[1].rstrip()}")
    if (environment := run.read_environment()) is not None:
        yield make_visible(f"# {run.environment_path.name}\n{environment.rstrip()}")


def run_facts(row: "RunStatus", record: "Record") -> dict[str, str]:
    """Identity and progress of the run."""
    from vmcjob.runs.budget import describe, group_of

    outcome, group = row.run.read_outcome(), group_of(row.run)
    energy = format_energy(row.energy, row.error)
    return {
        "run": row.run_id,
        "state": row.state.lower() + (f": {row.message}" if row.message else ""),
        "step": format_step(row),
        "energy": energy and f"{energy} hartree",
        "point": format_point(row.point),
        "seed": str(row.seed),
        "job": row.job_id or "",
        "memory": _format_growth(row.run),
        "used": format_usage(read_usage(row)),
        **describe_spent(row.run, script[1] if (script := _read_script(row.run)) else None),
        "budget": describe(row.run.path.parent, group) if group else "",
        "created": f"{format_time(record.created)}, by vmcjob {record.vmcjob_version}",
        "ended": format_time(outcome.time) if outcome and not row.state.is_active else "",
        "spec file": record.source,
        "directory": str(row.run.path),
    }


def _left(row: "RunStatus", started_at: float | None) -> str:
    """The time that the run needs, beside the wall time that its job has."""
    script = _read_script(row.run)
    return left_words(read_asked(row.run, script[1] if script else None), row.eta_s, started_at)


def _format_growth(run: "RunDir") -> str:
    """The memory that the run's job asks for, if it has grown."""
    from vmcjob.resources import format_memory

    submission = run.read_submission()
    if submission is None or submission.memory_mb is None:
        return ""
    return f"{format_memory(submission.memory_mb)} per node, grown after a lack of memory"


def read_usage(row: "RunStatus") -> "Usage | None":
    """The device hours of the run, used and forecast; None if its spec cannot be read."""
    from vmcjob.runs.usage import usage, work
    from vmcjob.spec import load_resolved

    run = row.run
    try:
        resources = load_resolved(run.read_spec_text(), str(run.spec_path)).resources
    except (RunDirError, SpecError):  # reported beside the spec
        return None
    submission = run.read_submission()
    is_job = submission is not None and submission.is_job
    done = work(run.read_attempts(), run.read_heartbeat())
    return usage(done, resources, is_job=is_job, eta_s=row.eta_s)


def format_usage(used: "Usage | None") -> str:
    """Device hours in one line; empty for a run that was never started."""
    if used is None or not used.attempts:
        return ""
    from vmcjob.runs.usage import format_hours

    so_far = "" if used.is_complete else "at least "
    hours, attempts = format_hours(used.used_hours), count(used.attempts, "attempt")
    words = f"{so_far}{hours} device hours in {attempts}"
    if used.forecast_hours is not None:
        words += f", about {format_hours(used.forecast_hours)} in the end"
    if used.asked_hours is not None:
        words += f"; an attempt may take {format_hours(used.asked_hours)}"
    return words


def _draw_attempts(attempts: list[dict[str, object]]) -> str:
    """The history as a table."""
    rows = []
    for event in attempts:
        how = [f"rank {event['rank']}"] if "rank" in event else []
        how += [str(event[key]) for key in ("outcome", "message", "how") if event.get(key)]
        rows.append(
            [
                Cell(format_time(event.get("time"))),
                Cell(str(event.get("event", ""))),
                Cell(str(event.get("host", ""))),
                Cell(str(event.get("worker_pid") or event.get("pid", ""))),
                Cell(": ".join(how)),
            ]
        )
    return draw_table(EVENT_COLUMNS, rows)


def provenance_facts(provenance: dict[str, object]) -> dict[str, str]:
    """The provenance of a run, by name."""
    return dict(_flatten(provenance))


def _flatten(facts: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Facts in lines, with one line per package version."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flatten({f"{name}.{key}": inner for key, inner in value.items()})
        elif value is not None:
            yield name, str(value)


def _read_script(run: "RunDir") -> tuple[Path, str] | None:
    """Path and text of the job script of the run; None without one."""
    from vmcjob.scheduler import find_script

    path = find_script(run)
    try:
        return None if path is None else (path, path.read_text("utf-8", "replace"))
    except OSError:  # not readable, or removed just now
        return None


def _variables(environment: str) -> dict[str, str]:
    """The env file of a container, read like a shell."""
    try:
        pairs = [word.partition("=") for word in shlex.split(environment)]
    except ValueError:  # edited by hand: a quote is not closed
        return {}
    return {name: value for name, _, value in pairs}
