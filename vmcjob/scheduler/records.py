"""What every submission writes into a run directory, whoever will run it."""

import os
from collections.abc import Sequence

from vmcjob import __version__
from vmcjob.plan import Plan, Task
from vmcjob.rundir import Record, RunDir


def distinct(plans: Sequence[Plan]) -> dict[str, tuple[str, Task]]:
    """Source and task by run id; the same science named twice is one run."""
    return {task.run_id: (plan.source, task) for plan in plans for task in plan.tasks}


def make_record(source: str, task: Task) -> Record:
    """Who the run is."""
    return Record(
        run_id=task.run_id,
        name=task.name,
        point=task.point,
        seed=task.seed,
        science_sha256=task.science_sha256,
        source=os.path.abspath(source),
        vmcjob_version=__version__,
    )


def write_spec(run: RunDir, text: str) -> None:
    """Record the spec's present resources: the science is the same."""
    if text != run.read_spec_text():
        run.write_spec_text(text)
