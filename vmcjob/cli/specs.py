"""The command `validate`, and reading of plans for other commands."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.app import Command, app
from vmcjob.cli.devices import asks_in_vain
from vmcjob.cli.expand import expand_options
from vmcjob.cli.hints import suggest, typed
from vmcjob.cli.options import SiteProfile, SpecPaths, resolve_site
from vmcjob.cli.overrides import SpecChanges
from vmcjob.cli.screen import fold, put, put_table, say
from vmcjob.cli.software import lacks
from vmcjob.cli.text import Cell, Heading, count
from vmcjob.errors import NotFoundError, SpecError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.plan import Plan
    from vmcjob.scheduler import SubmissionOptions
    from vmcjob.site import Site


COLUMNS = [
    Heading("spec"),
    Heading("verdict"),
    Heading("plan"),
    Heading("parameters", "right", dispensable=2),
    Heading("memory", "right", dispensable=1),
    Heading("store", "right", dispensable=3),
]


@app.command(cls=Command)
@expand_options
def validate(specs: SpecPaths, changes: SpecChanges, site: SiteProfile = None) -> None:
    """Check specs and write nothing; all complaints at once.

    Of the largest run of each: its parameters, the least memory that it needs, on all devices
    together, and about the disk space of its results. Below, a line for each system: its formula,
    charge, spin and shortest distance. Warnings name what is hardly meant, and what is lacking:
    memory of this machine, and where the site has jobs run, a release of a library or GPUs.
    """
    from vmcjob.scheduler import why_too_large
    from vmcjob.spec import describe_systems

    plans = read_plans(specs, changes)
    jobs = _jobs_of(resolve_site(site, None))
    put_table(COLUMNS, [_cells(plan) for plan in plans])
    for plan in plans:
        for line in describe_systems(task.spec.system for task in plan.tasks):
            put(fold(f"{plan.source}: {line}", sys.stdout))
    for plan in plans:
        say_doubts(plan)
        found = [why_too_large(plan), lacks(plan, jobs and jobs.site.container)]
        for words in (*found, jobs and asks_in_vain(plan, jobs)):
            if words:
                say(fold(words, sys.stderr))
    estimates = [typed(command="estimate")] if len(plans) == 1 else []
    suggest(*estimates, typed(command="submit -n --check" if jobs else "submit -n"))


def _jobs_of(site: "Site") -> "SubmissionOptions | None":
    """The options of jobs of the site's cluster; None where runs stay on this machine."""
    from vmcjob import scheduler
    from vmcjob.rundir import LOCAL

    if scheduler.choose(site.scheduler, is_local=False).name == LOCAL:
        return None
    return scheduler.SubmissionOptions(site.runs, site)


def say_doubts(plan: "Plan") -> None:
    """Warn of systems that can be computed and are hardly meant."""
    from vmcjob.spec import doubts_about

    for words in doubts_about(task.spec.system for task in plan.tasks):
        say(fold(f"{plan.source}: warning: {words}", sys.stderr))


def _cells(plan: "Plan") -> list[Cell]:
    """One spec as the cells of `COLUMNS`; its largest run counts."""
    from vmcjob.scheduler import largest
    from vmcjob.spec import format_bytes

    size = largest(plan)
    return [
        Cell(plan.source),
        Cell("valid", "green"),
        Cell(count(len(plan.tasks), "run")),
        Cell(str(size.parameters)),
        Cell(format_bytes(size.memory_bytes)),
        Cell(format_bytes(size.store_bytes)),
    ]


def read_plans(specs: list[Path], changes: SpecChanges | None = None) -> "list[Plan]":
    """The plans of all specs, changed by flags, or the mistakes in all specs."""
    from vmcjob.plan import make_plan
    from vmcjob.spec import read_spec

    overrides = (changes or SpecChanges()).overrides()
    plans: list[Plan] = []
    errors: list[VmcJobError] = []
    for path in specs:
        try:
            plans.append(make_plan(read_spec(path, overrides)))
        except (SpecError, NotFoundError) as error:
            errors.append(error)
    if errors:
        raise combine(errors)
    return plans
