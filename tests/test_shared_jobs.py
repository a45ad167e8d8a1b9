"""Runs that share jobs, from their spec to SLURM and back; its programs are stand-ins."""

import os
import pickle
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.runs import Programs
from tests.submissions import SlurmDraft, draft_for_slurm, submit_to_slurm
from vmcjob import scheduler
from vmcjob.errors import SchedulerError, SpecError
from vmcjob.plan import Plan, make_plan
from vmcjob.resources import Request
from vmcjob.rundir import RunDir, Submission, list_runs
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.slurm.mps import MPS, SETUP, TIME_SLICING
from vmcjob.site import Site, Slurm
from vmcjob.spec import parse_spec
from vmcjob.supervisor import Pack, Share

SPEC = """
name = "h"
seeds = {seeds}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[resources]
time = "01:00:00"
cpus = 8
{resources}
"""


def plan(seeds: int, resources: str, first: int = 0) -> Plan:
    text = SPEC.format(seeds=list(range(first, first + seeds)), resources=resources)
    return make_plan(parse_spec(text, "h.toml"))


def draw(root: Path, seeds: int, resources: str, max_parallel: int | None = None) -> SlurmDraft:
    return draft_for_slurm(root, [plan(seeds, resources)], Site(), Request(), max_parallel)


@pytest.fixture
def cluster(programs, tmp_path) -> Programs:
    programs.make("sbatch", "Submitted batch job 7\n")
    for name in ("srun", "squeue", "scontrol", "scancel"):
        programs.make(name)
    return programs


def submit(root: Path, seeds: int) -> list[RunDir]:
    """Runs, two to a job, by their places."""
    receipt = submit_to_slurm(root, [plan(seeds, "runs_per_job = 2")], Site(), Request(), None)
    return [item.run for item in receipt.submitted]


def submission(run: RunDir) -> Submission:
    found = run.read_submission()
    assert found is not None
    return found


def let(programs: Programs, root: Path, state: str) -> None:
    """SLURM has both jobs in this state."""
    (folder,) = (root / ".slurm").iterdir()
    now = round(time.time())
    lines = (f"{job_id}|{folder.name}|{state}|{now}|None\n" for job_id in ("7_0", "7_1"))
    programs.make("squeue", "".join(lines))


def test_how_many_share_a_job_changes_no_run():
    """It is a matter of where and how fast: the same science, the same id."""
    ids = [[t.run_id for t in plan(3, r).tasks] for r in ("", "runs_per_job = 4", "gpus = 2")]
    assert ids[0] == ids[1] == ids[2]


def test_ten_runs_are_three_jobs_that_cost_as_much_as_three(tmp_path):
    (array,) = draw(tmp_path, 10, "runs_per_job = 4").arrays
    assert [len(runs) for runs in array.jobs] == [4, 4, 2]
    assert "#SBATCH --array=0-2%3" in array.script
    assert "#SBATCH --gpus-per-node=1\n" in array.script
    assert "#SBATCH --cpus-per-task=8\n" in array.script
    cost = array.cost
    assert (cost.gpu_hours, cost.cpu_hours, cost.files) == (3.0, 24.0, 3000)
    packs = array.supervisors()
    shares = [[s.share for s in pack.supervisors] for pack in packs if isinstance(pack, Pack)]
    assert shares == [[Share(place, 4) for place in range(n)] for n in (4, 4, 2)]
    assert pickle.loads(pickle.dumps(packs)) == packs


@pytest.mark.parametrize(
    ("max_parallel", "n_runs", "per_job", "n_jobs"),
    [(8, 10, 4, 2), (5, 10, 4, 1), (2, 10, 2, 1), (1, 3, 1, 1), (None, 10, 4, 3)],
)
def test_no_more_runs_at_a_time_than_asked_for(tmp_path, max_parallel, n_runs, per_job, n_jobs):
    """Jobs are what SLURM counts, runs what the user does."""
    (array,) = draw(tmp_path, n_runs, "runs_per_job = 4", max_parallel).arrays
    assert (array.runs_per_job, array.max_parallel) == (per_job, n_jobs)
    limit = re.search(r"--array=0-\d+%(\d+)", array.script)
    assert limit is None or int(limit[1]) == n_jobs


@pytest.mark.parametrize(
    ("max_parallel", "n_running", "n_rows"),
    [(20, 13, 2), (9, 9, 2), (6, 6, 2), (5, 5, 2), (4, 4, 1)],
)
def test_jobs_of_several_runs_and_of_one_share_what_may_run(
    tmp_path, max_parallel, n_running, n_rows
):
    """Arrays in different rows run one after the other."""
    plans = [plan(10, "runs_per_job = 4"), plan(3, "mem = '1G'", first=10)]
    arrays = draft_for_slurm(tmp_path, plans, Site(), Request(), max_parallel).arrays
    assert sum(array.after is None for array in arrays) == n_rows
    together = [min(a.max_parallel * a.runs_per_job, len(a.runs)) for a in arrays]
    first = [n for n, array in zip(together, arrays, strict=True) if array.after is None]
    assert sum(first) <= n_running <= max_parallel


@pytest.mark.parametrize(
    ("resources", "error", "words"),
    [
        ("runs_per_job = 3\ngpus = 2", SchedulerError, "3 runs cannot share 2 GPUs evenly"),
        ("runs_per_job = 2\ngpus = 3", SchedulerError, "2 runs cannot share 3 GPUs evenly"),
        ("runs_per_job = 2\nnodes = 2", SpecError, "runs can share a job on one node only"),
        ("runs_per_job = 0", SpecError, "runs_per_job"),
    ],
)
def test_what_cannot_be_shared_is_refused(tmp_path, resources, error, words):
    with pytest.raises(error, match=words):
        draw(tmp_path, 4, resources)


def test_a_run_is_recorded_with_its_job_and_its_place(cluster, tmp_path):
    runs = submit(tmp_path, 3)
    let(cluster, tmp_path, "PENDING")
    found = [(s.job_id, s.array_index, s.place) for s in map(submission, runs)]
    assert found == [("7_0", 0, 0), ("7_0", 0, 1), ("7_1", 1, 0)]
    queue = scheduler.look(runs)
    assert [examine(run, queue).state for run in runs] == [State.QUEUED] * 3
    again = submit_to_slurm(tmp_path, [plan(3, "runs_per_job = 2")], Site(), Request(), None)
    assert [item.reason for item in again.skipped] == ["queued"] * 3


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_job_is_cancelled_with_the_last_of_its_runs(cluster, tmp_path, state):
    """Not with the first, for the other one has done nothing to deserve that."""
    first, second, alone = submit(tmp_path, 3)
    let(cluster, tmp_path, state)
    (done,) = scheduler.cancel([first])
    words = "asked to stop at its next checkpoint; job 7_0 goes on with another run"
    assert (done.was_active, done.result) == (True, words)
    assert cluster.calls("scancel") == []
    queue = scheduler.look(list_runs(tmp_path))
    others = {examine(run, queue).state for run in (second, alone)}
    assert examine(first, queue).state is State.CANCELLED
    assert others == {State.QUEUED if state == "PENDING" else State.RUNNING}
    for done in scheduler.cancel([alone, second]):
        assert "is being cancelled" in done.result
    assert cluster.calls("scancel") == ["7_1 7_0"]


def test_runs_of_one_job_that_are_cancelled_together_end_it_once(cluster, tmp_path):
    runs = submit(tmp_path, 4)
    let(cluster, tmp_path, "RUNNING")
    results = [done.result for done in scheduler.cancel(runs[:2])]
    assert results == ["job 7_0 is being cancelled"] * 2
    assert cluster.calls("scancel") == ["7_0"]
    cluster.make("scancel", code=1, error="scancel: error: Kill job error on job id 7_1: no\n")
    results = [done.result for done in scheduler.cancel(runs[2:])]
    assert results == ["not cancelled"] * 2
    assert [submission(run).cancelled_at for run in runs[2:]] == [None, None]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_cancelled_run_can_be_submitted_while_its_job_goes_on(cluster, tmp_path, state):
    """Its old job finds that it has been submitted anew, and leaves it alone."""
    first, second = submit(tmp_path, 2)
    (folder,) = (tmp_path / ".slurm").iterdir()
    cluster.make("squeue", f"7|{folder.name}|{state}|{time.time():.0f}|None\n")
    scheduler.cancel([first])
    assert [done.result for done in scheduler.cancel([first])] == ["not active (cancelled)"]
    cluster.make("sbatch", "Submitted batch job 8\n")
    again = submit(tmp_path, 2)
    assert again == [first]
    assert (submission(first).job_id, submission(second).job_id) == ("8", "7")
    assert submission(first).job_name != submission(second).job_name


@pytest.mark.parametrize(
    ("resources", "max_parallel", "has_mps", "how"),
    [
        ("runs_per_job = 4", None, True, MPS),
        ("runs_per_job = 4", None, False, TIME_SLICING),
        ("runs_per_job = 4\ngpus = 4", None, True, ""),  # each has its own
        ("runs_per_job = 4\ngpus = 0", None, True, ""),
        ("runs_per_job = 4", 1, True, ""),  # one at a time has the GPU to itself
    ],
)
def test_a_job_starts_mps_only_for_runs_that_share_a_gpu(
    tmp_path, resources, max_parallel, has_mps, how
):
    site = Site(slurm=Slurm(mps=has_mps))
    drawn = draft_for_slurm(tmp_path, [plan(4, resources)], site, Request(), max_parallel)
    (preview,) = {array.preview().gpu_sharing for array in drawn.arrays}
    assert preview == how
    for array in drawn.arrays:
        assert ("\n".join(SETUP) in array.script) is (how == MPS)


@pytest.mark.parametrize("code", [0, 1])
def test_the_daemon_of_mps_lives_as_long_as_its_job(tmp_path, programs, code):
    """Where it does not start, workers must not look for it: CUDA would wait in vain."""
    programs.make("nvidia-cuda-mps-control")
    (programs.folder / "nvidia-cuda-mps-control").write_text(
        "#!/bin/bash\n[ $# = 0 ] && read word\n"
        'echo "$1 $word ${CUDA_VISIBLE_DEVICES:-all}" >> "$0.calls"\n'
        f"exit {code}\n"
    )
    show = "echo $CUDA_MPS_PIPE_DIRECTORY; ls -d /tmp/vmcjob-mps-$SLURM_JOB_ID"
    job_id = f"test-{os.getpid()}"
    folder = Path(f"/tmp/vmcjob-mps-{job_id}")
    environ = {"PATH": f"{programs.folder}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "2"}
    done = subprocess.run(
        ["bash", "-c", "\n".join((*SETUP, show))],
        env=environ | {"SLURM_JOB_ID": job_id},
        capture_output=True,
        text=True,
    )
    calls = programs.calls("nvidia-cuda-mps-control")
    assert not folder.exists()
    if code == 0:
        assert done.stdout == f"{folder}\n{folder}\n"
        assert calls == ["-d  all", " quit 2"]
    else:
        assert done.stdout == "\n"
        assert calls == ["-d  all"]
        assert "share a GPU by time slicing" in done.stderr
