"""Jobs that SLURM took while its answer was lost, here by stand-ins: none is orphaned."""

import pickle
import time
from pathlib import Path

import pytest

from tests.submissions import submit_to_slurm
from vmcjob.errors import SchedulerError
from vmcjob.plan import make_plan
from vmcjob.resources import Request
from vmcjob.rundir import list_runs
from vmcjob.site import Site
from vmcjob.spec import parse_spec
from vmcjob.supervisor import Supervisor

SPEC = """
name = "h"
seeds = [0, 1]
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
"""
DEAF = """#!/bin/sh
case "$*" in *--test-only*) exit 0 ;; esac
echo "sbatch: error: Socket timed out on send/recv operation" >&2
exit 1
"""


def run_dir_in(path: Path) -> str:
    supervisor = pickle.loads(path.read_bytes()).function
    assert isinstance(supervisor, Supervisor)
    return supervisor.run_dir


def test_the_next_submission_gives_the_jobs_what_they_wait_for(tmp_path, programs):
    """submitit names requests after jobs: each has to find its own, not that of the other."""
    plans = [make_plan(parse_spec(SPEC, "h.toml"))]
    request = tmp_path, plans, Site(), Request(), None
    sbatch = programs.folder / "sbatch"
    sbatch.write_text(DEAF)
    sbatch.chmod(0o755)
    for name in ("srun", "scontrol"):
        programs.make(name)
    programs.make("squeue", code=1)
    with pytest.raises(SchedulerError, match="sbatch: Socket timed out"):
        submit_to_slurm(*request)
    (folder,) = (tmp_path / ".slurm").iterdir()
    programs.make(
        "squeue",
        f"7_0|{folder.name}|PENDING|N/A|Priority\n"
        f"7_1|{folder.name}|RUNNING|{time.time():.0f}|None\n",
    )
    for _ in range(2):  # the second time, there is nothing left to do
        receipt = submit_to_slurm(*request)
        assert receipt.submitted == ()
        submissions = [run.read_submission() for run in list_runs(tmp_path)]
        ids = {(found.job_id, found.array_index) for found in submissions if found}
        assert ids == {("7_0", 0), ("7_1", 1)}
        for run in list_runs(tmp_path):
            submission = run.read_submission()
            assert submission is not None
            assert run_dir_in(folder / f"{submission.job_id}_submitted.pkl") == str(run.path)
        assert (folder / "7_submission.sh").is_file()
