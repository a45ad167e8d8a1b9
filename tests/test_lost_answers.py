"""Jobs that SLURM took while its answer was lost, here by stand-ins: none is orphaned."""

import pickle
import sys
import time
from pathlib import Path

import pytest

from tests.runs import Programs
from tests.submissions import submit_to_slurm
from vmcjob.errors import SchedulerError
from vmcjob.plan import make_plan
from vmcjob.resources import Request
from vmcjob.rundir import list_runs
from vmcjob.scheduler import Receipt
from vmcjob.scheduler.slurm.patience import (
    MAX_PAUSE_S,
    MAX_UNANSWERED,
    N_PAUSES,
    N_PAUSES_OF_QUESTIONS,
    SETTLING_S,
)
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
echo "sbatch: error: Unexpected message received" >&2
exit 1
"""


# Takes a job when the answers in the file "busy" are used up; a line of "taken" is a job.
BUSY = """#!{python}
import re, sys
from pathlib import Path

folder = Path({folder!r})
if "--test-only" in sys.argv:
    sys.exit(0)
script = Path(sys.argv[-1]).read_text()
name = re.search(r"--job-name=(\\S+)", script)[1]
answers = (folder / "busy").read_text().splitlines()
(folder / "busy").write_text("".join(line + "\\n" for line in answers[1:]))
with open(folder / "sbatch.calls", "a") as calls:
    calls.write("x\\n")
if not answers or answers[0].startswith("taken: "):
    with open(folder / "squeue.out", "a") as jobs:
        jobs.writelines(f"7_{{n}}|{{name}}|PENDING|N/A|Priority\\n" for n in (0, 1))
if answers:
    print("sbatch: error: " + answers[0].removeprefix("taken: "), file=sys.stderr)
    sys.exit(1)
print("Submitted batch job 7")
"""
FULL = "Batch job submission failed: Resource temporarily unavailable"
SILENT = "Batch job submission failed: Socket timed out on send/recv operation"
AWAY = "Batch job submission failed: Unable to contact slurm controller (connect failure)"


def make_busy(programs: Programs, *answers: str) -> None:
    """An sbatch that gives these answers before it takes a job and says so."""
    (programs.folder / "busy").write_text("".join(f"{answer}\n" for answer in answers))
    sbatch = programs.folder / "sbatch"
    sbatch.write_text(BUSY.format(python=sys.executable, folder=str(programs.folder)))
    sbatch.chmod(0o755)
    for name in ("srun", "scontrol", "squeue"):
        programs.make(name)


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """The seconds that a submission would have paused."""
    found: list[float] = []
    monkeypatch.setattr("vmcjob.scheduler.slurm.patience.pause", found.append)
    return found


def submit_two(root: Path) -> Receipt:
    return submit_to_slurm(root, [make_plan(parse_spec(SPEC, "h.toml"))])


def requests_in(root: Path) -> set[str]:
    """What waits in the folder of the submission for its jobs."""
    (folder,) = (root / ".slurm").iterdir()
    assert len(list(folder.glob(".submission_file*"))) <= 1, "submitit keeps its last one"
    return {path.name for path in folder.glob("*.pkl")}


@pytest.mark.parametrize("answer", [FULL, SILENT, AWAY])
def test_a_busy_controller_is_asked_again_and_has_one_job_in_the_end(
    tmp_path, programs, pauses, answer
):
    """20 busy answers; what was written for them is gone, and pauses grow up to a bound."""
    make_busy(programs, *[answer] * 20)
    receipt = submit_two(tmp_path)
    assert [item.job_id for item in receipt.submitted] == ["7_0", "7_1"]
    assert len(programs.calls("sbatch")) == 21
    assert requests_in(tmp_path) == {"7_0_submitted.pkl", "7_1_submitted.pkl"}
    assert max(pauses) == MAX_PAUSE_S
    assert answer == SILENT or pauses[:4] == [1.0, 2.0, 4.0, 8.0]


def test_a_job_that_was_taken_without_an_answer_is_not_submitted_again(tmp_path, programs, pauses):
    """A second job with the same runs would be two workers for each of them."""
    make_busy(programs, SILENT, f"taken: {SILENT}", SILENT)
    receipt = submit_two(tmp_path)
    assert [item.job_id for item in receipt.submitted] == ["7_0", "7_1"]
    assert len(programs.calls("sbatch")) == 2
    folder = next((tmp_path / ".slurm").iterdir())
    for item in receipt.submitted:
        assert run_dir_in(folder / f"{item.job_id}_submitted.pkl") == str(item.run.path)
    assert pauses[0] == SETTLING_S, "slurmctld may still be at work on what it was asked"


def test_while_nobody_says_whether_there_is_a_job_none_is_submitted_again(
    tmp_path, programs, pauses
):
    """squeue is as silent as sbatch: the record stands, for the next submission to look."""
    make_busy(programs, SILENT, SILENT)
    programs.make("squeue", code=1, error="slurm_load_jobs error: Socket timed out\n")
    with pytest.raises(SchedulerError, match="SLURM stayed busy, submit again later"):
        submit_two(tmp_path)
    assert len(programs.calls("sbatch")) == 1
    assert (
        len(pauses) == MAX_UNANSWERED
    )  # a user does not wait for hours for a controller that hangs
    assert all(run.read_submission() is not None for run in list_runs(tmp_path))


def test_a_controller_that_is_full_is_named_as_such_and_no_run_is_left(tmp_path, programs, pauses):
    make_busy(programs, *[FULL] * (N_PAUSES + 1))
    with pytest.raises(SchedulerError, match=r"as many jobs as it keeps at a time \(MaxJobCount\)"):
        submit_two(tmp_path)
    assert list_runs(tmp_path) == []


def test_a_refusal_is_final(tmp_path, programs, pauses):
    make_busy(programs, "Batch job submission failed: Invalid account")
    with pytest.raises(SchedulerError, match="sbatch: Batch job submission failed: Invalid acc"):
        submit_two(tmp_path)
    assert (len(programs.calls("sbatch")), pauses) == (1, [])


def test_what_a_busy_controller_is_only_asked_is_asked_again_too(tmp_path, programs, pauses):
    """Partitions, and what sbatch would say; a controller that is away may not be there at all."""
    for words, n_pauses in ((SILENT, N_PAUSES_OF_QUESTIONS), (AWAY, 0)):
        make_busy(programs)
        programs.make("scontrol", code=1, error=f"slurm_load_partitions: {words}\n")
        pauses.clear()
        with pytest.raises(SchedulerError, match="with --local, runs stay here"):
            submit_two(tmp_path)
        assert len(pauses) == n_pauses


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
    with pytest.raises(SchedulerError, match="sbatch: Unexpected message"):
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
