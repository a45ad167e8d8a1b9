"""What SLURM's programs hear from the user's environment, and what a site's wrappers add."""

import os

import pytest

from tests.runs import Programs, make_run
from tests.submissions import submit_to_slurm
from vmcjob import scheduler
from vmcjob.errors import SchedulerError
from vmcjob.plan import make_plan
from vmcjob.protocol.rank import Rank
from vmcjob.resources import Request
from vmcjob.rundir import Submission, list_runs
from vmcjob.runs.status import Stage
from vmcjob.site import Site
from vmcjob.slurm import SlurmJob
from vmcjob.slurm.environment import clean
from vmcjob.spec import parse_spec

SPEC = 'name = "h"\n[system]\natoms = [["H", 0.0, 0.0, 0.0]]'
FILTERS = (
    "SQUEUE_PARTITION",
    "SQUEUE_STATES",
    "SACCT_FEDERATION",
    "SBATCH_PARTITION",
    "SLURM_TIME",
)
FILTERS += ("SLURM_CLUSTERS", "SLURM_JOB_ID", "SRUN_ACCOUNT", "SCANCEL_STATE", "SINFO_FORMAT")
BANNER = "*** Welcome | to | the | best | cluster ***\nMaintenance on 2026-12-24 | 12:00\n\n"


@pytest.fixture
def filtered(programs, monkeypatch) -> Programs:
    """A user with filters in their environment, and a cluster that is found by it."""
    for name in FILTERS:
        monkeypatch.setenv(name, "other")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    programs.make("sbatch", "Submitted batch job 7\n")
    for name in ("srun", "squeue", "sacct", "scontrol", "scancel"):
        programs.make(name)
    return programs


def test_nothing_in_the_environment_filters_what_slurm_is_asked_and_told(filtered, tmp_path):
    """A queued run that squeue hides would be submitted a second time."""
    plans = [make_plan(parse_spec(SPEC, "h.toml"))]
    submit_to_slurm(tmp_path, plans, Site(), Request(), None)
    (run,) = list_runs(tmp_path)
    scheduler.look([run])
    (folder,) = (tmp_path / ".slurm").iterdir()
    filtered.make("squeue", f"7|{folder.name}|PENDING|N/A|Priority\n")
    scheduler.cancel([run])
    for name in ("sbatch", "squeue", "sacct", "scontrol", "scancel"):
        seen = filtered.variables(name)
        assert "SLURM_CONF" in seen
        assert not seen & set(FILTERS), name
    assert os.environ["SBATCH_PARTITION"] == "other"  # hidden, not taken


def test_a_check_before_submitting_hears_nothing_of_the_environment_either(filtered, tmp_path):
    """With SBATCH_PARTITION, it would judge another job than the one that is submitted."""
    filtered.make("sbatch", code=1, error="no\n")
    with pytest.raises(SchedulerError, match="sbatch: no"):
        submit_to_slurm(tmp_path, [make_plan(parse_spec(SPEC, "h.toml"))], Site(), Request(), None)
    assert ["--test-only" in call for call in filtered.calls("sbatch")] == [True]
    assert not filtered.variables("sbatch") & set(FILTERS)


def test_a_supervisor_asks_as_plainly(filtered):
    """The profile's setup, or a module, may have set what filters, for the whole job."""
    job = SlurmJob("7", "7", 0)
    job.end_time()
    job.requeue()
    for name in ("squeue", "scontrol"):
        assert not filtered.variables(name) & set(FILTERS)


def test_the_way_to_the_cluster_is_kept():
    needed = {"SLURM_CONF": "a", "SLURM_CONF_SERVER": "b", "SLURM_JWT": "c", "PATH": "d"}
    assert clean(needed | {"SLURM_EXIT_ERROR": "1", "SBATCH_QOS": "x"}) == needed


@pytest.mark.parametrize(("seeds", "ids"), [("[0]", {"7"}), ("[0, 1]", {"7_0", "7_1"})])
def test_other_jobs_that_a_wrapper_speaks_of_are_not_taken_for_ours(filtered, tmp_path, seeds, ids):
    """Cancelling would end one of them, which may be another user's of the account."""
    filtered.make("sbatch", "job 3 of 9 may start\nSubmitted batch job 7\nYour last job 5 failed\n")
    plans = [make_plan(parse_spec(f"seeds = {seeds}\n{SPEC}", "h.toml"))]
    submit_to_slurm(tmp_path, plans, Site(), Request(), None)
    submissions = [run.read_submission() for run in list_runs(tmp_path)]
    assert {found.job_id for found in submissions if found} == ids


def test_what_a_wrapper_says_beside_the_answer_is_not_taken_for_it(programs, tmp_path):
    run = make_run(tmp_path)
    run.write_submission(Submission(scheduler="slurm", job_id="22", job_name="h2-abc"))
    programs.make("squeue", BANNER + "22|h2-abc|PENDING|N/A|Priority\n" + BANNER)
    found = scheduler.look([run])[run.path]
    assert (found.stage, found.words) == (Stage.WAITING, "others come first")
    programs.make("squeue", BANNER)
    programs.make("sacct", BANNER + "22|h2-abc|OUT_OF_MEMORY|1700000000\n")
    found = scheduler.look([run])[run.path]
    assert (found.stage, found.job_id) == (Stage.ENDED, "22")
    programs.make("squeue", f"{BANNER}7 1900000000 UNLIMITED\n")
    assert SlurmJob("7", "7", 0).end_time() == 1_900_000_000
    programs.make("scontrol", BANNER + "n1\nn2\n")
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "n[1-2]"}
    assert SlurmJob("7", "25", 0).rank(step) == Rank(1, 2, "n1:61465")
