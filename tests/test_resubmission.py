"""A run that SLURM has already, submitted again: nothing that is asked for is lost in silence."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs import Programs
from tests.submissions import submit_to_slurm
from vmcjob import scheduler
from vmcjob.errors import SchedulerError, UsageError
from vmcjob.plan import make_plan
from vmcjob.resources import Request
from vmcjob.rundir import Activity, Heartbeat, list_runs
from vmcjob.scheduler import Receipt
from vmcjob.site import Site
from vmcjob.spec import parse_spec

SPEC = """
name = "h"
seeds = {seeds}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[resources]
time = "{time}"
"""
FLAGS = Request(mem="2G", extra=("nice=5",))


def submit(
    root: Path, flags: Request = FLAGS, seeds: str = "[0]", time: str = "00:30:00"
) -> Receipt:
    plans = [make_plan(parse_spec(SPEC.format(seeds=seeds, time=time), "h.toml"))]
    return submit_to_slurm(root, plans, Site(), flags, None)


@pytest.fixture(params=["[0]", "[0, 1]"], ids=["job", "array"])
def queued(request, programs, tmp_path) -> Path:
    """A runs root with runs that wait."""
    programs.make("sbatch", "Submitted batch job 7\n")
    for name in ("srun", "squeue", "scontrol"):
        programs.make(name)
    root = tmp_path / "runs"
    submit(root, seeds=request.param)
    let_wait(programs, root)
    return root


def let_wait(programs: Programs, root: Path) -> None:
    let(programs, root, "PENDING")


def let(programs: Programs, root: Path, state: str, since: float = 0.0) -> None:
    """Have SLURM say this of all jobs."""
    (folder,) = (root / ".slurm").iterdir()
    ids = ("7", "7_0", "7_1")
    lines = (f"{job_id}|{folder.name}|{state}|{since:.0f}|Priority\n" for job_id in ids)
    programs.make("squeue", "".join(lines))


def test_what_is_queued_as_it_is_asked_for_is_only_queued(queued):
    """Also by another name of the place, and beside runs that are new."""
    assert [item.reason for item in submit(queued).skipped] == ["queued"]
    there = queued.parent / "there"
    there.symlink_to(queued)
    assert [item.reason for item in submit(there).skipped] == ["queued"]


@pytest.mark.parametrize(
    "other",
    [
        {"flags": Request(mem="3G", extra=("nice=5",))},
        {"flags": Request(mem="2G", extra=("nice=5",), partition="gpu")},
        {"flags": Request(mem="2G")},
        {"time": "10:00:00"},
    ],
)
def test_a_queued_job_keeps_its_options_and_says_so(queued, other):
    (skipped,) = submit(queued, **other).skipped
    assert skipped.reason == (
        "queued with other options, which it keeps; vmcjob cancel it first to change them"
    )


def test_a_run_that_is_silent_is_left_alone_as_long_as_its_job_goes_on(queued, programs):
    """Its host's clock may be wrong; a second worker would be refused, and end the first's run."""
    long_ago = time.time() - 10_000
    for run in list_runs(queued):
        submission = run.read_submission()
        assert submission is not None
        run.write_submission(replace(submission, started_at=long_ago))
        beat = Heartbeat(phase=Activity.TRAIN, step=1, n_steps=9, host="elsewhere", pid=1)
        run.write_heartbeat(replace(beat, time=long_ago))
    let(programs, queued, "RUNNING", long_ago)
    (skipped,) = submit(queued).skipped
    assert skipped.reason == "running"
    programs.make("scancel")
    (done,) = scheduler.cancel([skipped.run])
    assert done.result.endswith("is being cancelled")


def test_options_are_judged_though_nothing_is_submitted(queued):
    with pytest.raises(SchedulerError, match="vmcjob sets --array itself"):
        submit(queued, Request(extra=("array=0-9",)))
    with pytest.raises(UsageError, match="--time: expected a wall time"):
        submit(queued, Request(time="xx"))
