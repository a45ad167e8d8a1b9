"""A runs root that cannot be written: one exit code, wherever it is found out, and no trace."""

from pathlib import Path

import pytest

from tests.runs import make_run
from tests.submissions import submit_here, submit_to_slurm
from vmcjob.errors import RunDirError
from vmcjob.plan import Plan, make_plan
from vmcjob.rundir import RunDir, Submission, list_runs
from vmcjob.runs.status import State, examine
from vmcjob.scheduler import queue_lock
from vmcjob.scheduler.slurm.jobfiles import adopt
from vmcjob.spec import parse_spec

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
        is_refused = submit is submit_to_slurm and place == ".slurm"  # nothing of it stays
        expected = set() if is_refused else {State.NEW}
        assert {examine(run).state for run in list_runs(root)} == expected


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


def test_a_job_whose_id_cannot_be_noted_is_submitted_and_found_by_its_name(
    tmp_path, plans, cluster, monkeypatch, caplog
):
    """A disk that is full after sbatch takes no job back; that it failed would be a lie."""
    write = RunDir.write_submission

    def write_without_id(run: RunDir, submission: Submission) -> None:
        if submission.job_id is not None:
            raise RunDirError(f"{run.submission_path}: cannot be written: No space left on device")
        write(run, submission)

    with monkeypatch.context() as full_disk:
        full_disk.setattr(RunDir, "write_submission", write_without_id)
        receipt = submit_to_slurm(tmp_path, plans)
    assert [item.job_id for item in receipt.submitted] == ["7_0", "7_1"]
    assert "No space left on device; the run is submitted all the same, as job 7_0" in caplog.text
    (name,) = {submission.job_name for submission in submissions(tmp_path)}
    waiting = (f"7_{index}|{name}|PENDING|N/A|Priority\n" for index in (0, 1))
    cluster.make("squeue", "".join(waiting))
    assert submit_to_slurm(tmp_path, plans).submitted == ()
    assert {submission.job_id for submission in submissions(tmp_path)} == {"7_0", "7_1"}


def submissions(root: Path) -> list[Submission]:
    """What the runs below a root know of their jobs."""
    found = [run.read_submission() for run in list_runs(root)]
    return [submission for submission in found if submission is not None]


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
