"""A runs root that cannot be written: one exit code, wherever it is found out, and no trace."""

import pytest

from tests.runs import make_run
from tests.submissions import submit_here, submit_to_slurm
from vmcjob.errors import RunDirError
from vmcjob.plan import Plan, make_plan
from vmcjob.rundir import RunDir, Submission, list_runs
from vmcjob.scheduler import queue_lock
from vmcjob.scheduler.slurm.jobfiles import adopt
from vmcjob.spec import parse_spec
from vmcjob.status import State, examine

SPEC = """
name = "h"
seeds = [0, 1]
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
"""


@pytest.fixture
def plans() -> list[Plan]:
    return [make_plan(parse_spec(SPEC, "h.toml"))]


@pytest.fixture
def cluster(programs):
    programs.make("sbatch", "Submitted batch job 7\n")
    for name in ("srun", "squeue", "scontrol"):
        programs.make(name)
    return programs


@pytest.mark.parametrize("place", [".", ".local", ".local/queue.lock", ".slurm"])
@pytest.mark.parametrize("submit", [submit_here, submit_to_slurm])
def test_it_is_one_exit_code_at_every_step(tmp_path, plans, cluster, place, submit):
    """Files and folders in the way stand for a lack of permission, which root does not know."""
    root = tmp_path / "runs"
    if place == ".local/queue.lock":
        (root / place).mkdir(parents=True)
    else:
        (root / place).parent.mkdir(exist_ok=True, parents=True)
        (root / place).write_text("in the way")
    if submit is submit_here and place == ".slurm":
        return  # which is not in its way
    with pytest.raises(RunDirError) as refusal:
        submit(root, plans)
    assert refusal.value.exit_code == 1
    assert str(root) in str(refusal.value)
    assert not [call for call in cluster.calls("sbatch") if "--test-only" not in call]
    if root.is_dir():
        assert {examine(run).state for run in list_runs(root)} == {State.NEW}


def test_a_run_that_cannot_be_recorded_stays_behind_alone(tmp_path, plans, cluster):
    """Half an array that is recorded and never submitted would be looked for at every status."""
    slurm_runs = [RunDir(tmp_path / task.run_id) for plan in plans for task in plan.tasks]
    for run, task in zip(slurm_runs, plans[0].tasks, strict=True):
        make_run(tmp_path, run.path.name, seed=task.seed, science_sha256=task.science_sha256)
    (slurm_runs[0].submission_path / "in the way").mkdir(parents=True)
    receipt = submit_to_slurm(tmp_path, plans)
    (skipped,) = receipt.skipped
    assert (skipped.run, type(skipped.error)) == (slurm_runs[0], RunDirError)
    assert [item.run for item in receipt.submitted] == slurm_runs[1:]
    submission = slurm_runs[1].read_submission()
    assert submission is not None
    assert (submission.job_id, submission.array_index) == ("7", None)  # an array no more


def test_what_is_done_for_a_job_later_is_no_fault_of_slurms_either(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError), queue_lock(tmp_path / "file"):
        pass
    run = make_run(tmp_path)
    folder = tmp_path / ".slurm" / "h2-abc"
    (folder / "7_submission.sh" / "in the way").mkdir(parents=True)
    (folder / ".submission_file_1.sh").write_text("")
    with pytest.raises(RunDirError, match="cannot be written"):
        adopt(run, Submission(scheduler="slurm", job_id=None, job_name="h2-abc"), "7")
