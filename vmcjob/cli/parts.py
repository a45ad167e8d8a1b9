"""Where the time of a run's training step goes: show --parts."""

import os
import sys
from typing import TYPE_CHECKING

from vmcjob.cli.screen import can_redraw, put, put_json, put_table, say
from vmcjob.cli.text import Cell, Column

if TYPE_CHECKING:
    from vmcjob.run.timing import Timing
    from vmcjob.rundir import RunDir

COLUMNS = [
    Column("part"),
    Column("share", "right"),
    Column("passes of log|psi|", "right"),
]
PREALLOCATION = "XLA_PYTHON_CLIENT_PREALLOCATE"


def show_parts(run: "RunDir", *, as_json: bool) -> None:
    """Time a training step of the run and its parts, on this machine, and print the table."""
    timing = _time(run)
    if timing.warning:
        say(timing.warning)
    if as_json:
        put_json(timing.to_json())
        return
    phase, step = timing.phase, timing.step
    put(f"{timing.run_id}: a training step of {timing.walkers} walkers on {timing.devices}")
    put(f"from {phase} step {step} on\n")
    put_table(COLUMNS, list(_rows(timing)))
    put(f"\nstep / floor  {timing.times.step / timing.times.floor:.2f}")


def _time(run: "RunDir") -> "Timing":
    """JAX takes seconds to import, so nobody else here does."""
    from vmcjob.run import programs, startup
    from vmcjob.spec import load_resolved

    # Of a GPU that a worker of the run may be on, no more than what is needed.
    os.environ.setdefault(PREALLOCATION, "false")
    programs.keep_programs()
    startup.import_jax(load_resolved(run.read_spec_text(), str(run.spec_path)))
    startup.find_devices()
    from vmcjob.run.timing import time_run

    if can_redraw(sys.stderr):
        say("times a step and its parts by turns; to compile them may take a minute", "dim")
    return time_run(run)


def _rows(timing: "Timing") -> list[list[Cell]]:
    """A line for each part, the rest, and the step."""
    times = timing.times
    named = times.parts | {"rest": times.rest, "step": times.step}
    return [
        [
            Cell(name),
            Cell(f"{100 * seconds / times.step:.1f} %"),
            Cell(f"{seconds / times.one_pass:.1f}"),
        ]
        for name, seconds in named.items()
    ]
