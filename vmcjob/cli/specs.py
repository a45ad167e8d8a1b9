"""Specs without their runs: validate, and reading plans for whoever submits them."""

from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.app import Command, app
from vmcjob.cli.options import SpecPaths
from vmcjob.cli.screen import put_table
from vmcjob.cli.text import Cell, Column, count
from vmcjob.errors import NotFoundError, SpecError, VmcJobError, combine

if TYPE_CHECKING:
    from vmcjob.plan import Plan


@app.command(cls=Command)
def validate(specs: SpecPaths) -> None:
    """Check specs and write nothing; all complaints at once."""
    plans = read_plans(specs)
    columns = [Column("spec"), Column("verdict"), Column("plan")]
    put_table(
        columns,
        [
            [Cell(plan.source), Cell("valid", "green"), Cell(count(len(plan.tasks), "run"))]
            for plan in plans
        ],
    )


def read_plans(specs: list[Path]) -> "list[Plan]":
    """The plans of all specs, or the complaints about all specs."""
    from vmcjob.plan import make_plan
    from vmcjob.spec import read_spec

    plans: list[Plan] = []
    errors: list[VmcJobError] = []
    for path in specs:
        try:
            plans.append(make_plan(read_spec(path)))
        except (SpecError, NotFoundError) as error:
            errors.append(error)
    if errors:
        raise combine(errors)
    return plans
