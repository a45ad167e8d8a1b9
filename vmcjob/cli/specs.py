"""The command `validate`, and reading of plans for other commands."""

from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.app import Command, app
from vmcjob.cli.expand import expand_options
from vmcjob.cli.hints import suggest, typed
from vmcjob.cli.options import SpecPaths
from vmcjob.cli.overrides import SpecChanges
from vmcjob.cli.screen import put, put_table, say
from vmcjob.cli.software import lacks
from vmcjob.cli.text import Cell, Heading, count
from vmcjob.errors import NotFoundError, SpecError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.plan import Plan


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
def validate(specs: SpecPaths, changes: SpecChanges) -> None:
    """Check specs and write nothing; all complaints at once.

    Of the largest run of each: its parameters, the least memory that it needs, on all devices
    together, and about the disk space of its results. Below, a line for each system: its formula,
    charge, spin and shortest distance. Warnings name what is hardly meant, and what this machine
    lacks: memory, or a release of a library that the optimizer runs on.
    """
    from vmcjob.scheduler import why_too_large
    from vmcjob.spec import describe_systems

    plans = read_plans(specs, changes)
    put_table(COLUMNS, [_cells(plan) for plan in plans])
    for plan in plans:
        for line in describe_systems(task.spec.system for task in plan.tasks):
            put(f"{plan.source}: {line}")
    for plan in plans:
        say_doubts(plan)
        for words in (why_too_large(plan), lacks(plan)):
            if words:
                say(words)
    estimates = [typed(command="estimate")] if len(plans) == 1 else []
    suggest(*estimates, typed(command="submit -n"))


def say_doubts(plan: "Plan") -> None:
    """Warn of systems that can be computed and are hardly meant."""
    from vmcjob.spec import doubts_about

    for words in doubts_about(task.spec.system for task in plan.tasks):
        say(f"{plan.source}: warning: {words}")


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
