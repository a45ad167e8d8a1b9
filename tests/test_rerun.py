"""Beginning runs anew: nothing is lost, nobody is disturbed."""

from pathlib import Path

import pytest

from tests.cli.shell import finish
from tests.runs import end_everything, make_record, make_run, wait_until
from tests.submissions import draft_for_slurm, draft_here, submit_here, submit_to_slurm
from vmcjob.errors import RunDirError
from vmcjob.plan import Plan, make_plan
from vmcjob.resources import Request
from vmcjob.rundir import RunDir, Submission, list_runs
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.records import create_run, prepare
from vmcjob.site import Site
from vmcjob.spec import parse_spec
from vmcjob.supervisor import note_end

SPEC = """
name = "h"
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
"""


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse_spec(SPEC, "h.toml"))


@pytest.fixture
def ended(tmp_path, plan) -> RunDir:
    """A finished run."""
    run = create_run(tmp_path, plan.source, plan.tasks[0])
    run.append_attempt("end", outcome="FINISHED")
    return finish(run)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")} - {"lock"}


def test_what_there_was_is_put_aside_whole(tmp_path):
    """Twice, so that the second time does not bury the first."""
    run = finish(make_run(tmp_path, "h.1-0123456789"))
    (run.start_path / "train").mkdir(parents=True)
    for number in (1, 2):
        run.log_path.write_text(f"life {number}")
        before = names(run.path)
        aside = run.start_over(make_record("h.1-0123456789", created=7.0), "new")
        assert aside.path == tmp_path / ".old" / f"h.1-0123456789.{number}"
        assert names(aside.path) == before
        assert names(run.path) == {"run.json", "spec.toml", "start.zarr", "train"}
        assert (run.read_record().created, run.read_spec_text()) == (7.0, "new")
    assert [old.log_path.read_text() for old in run.earlier] == ["life 1", "life 2"]
    assert list_runs(tmp_path) == [run]


def test_a_run_at_work_is_left_alone(tmp_path):
    """Whatever its files say: who holds the lock writes into this directory."""
    run = finish(make_run(tmp_path))
    before = names(run.path)
    with run.lock(), pytest.raises(RunDirError, match="already being run by pid"):
        run.start_over(make_record(), "new")
    assert names(run.path) == before
    assert run.earlier == []


def test_a_start_that_cannot_be_made_leaves_all_as_it_was(tmp_path):
    run = finish(make_run(tmp_path))
    (tmp_path / ".old").write_text("in the way")
    with pytest.raises(RunDirError, match="cannot be started again: File exists"):
        run.start_over(make_record(), "new")
    assert run.has_results


def test_a_finished_run_begins_anew_only_when_asked_to(tmp_path, plan, ended):
    assert draft_here(tmp_path, [plan]).submitted == ()
    (item,) = draft_here(tmp_path, [plan], is_restart=True).submitted
    assert item.run == ended
    assert ended.has_results
    command = ("/bin/true",)
    receipt = submit_here(tmp_path, [plan], max_parallel=1, worker_command=command, is_restart=True)
    try:
        wait_until(lambda: examine(ended).state is State.FAILED, "the new worker has ended")
    finally:
        end_everything(tmp_path)
        receipt.wait()
    (item,) = receipt.submitted
    assert item.aside is not None
    assert item.aside.has_results
    assert not ended.has_results
    assert [event["event"] for event in ended.read_attempts()] == ["lost"]


def test_of_several_jobs_to_begin_anew_one_at_work_is_left_out_whole(tmp_path, programs):
    """Nothing of the others is half done: they are put aside, and SLURM has them."""
    plan = make_plan(parse_spec(SPEC.replace("[system]", "seeds = [0, 1]\n[system]"), "h.toml"))
    busy, free = (finish(create_run(tmp_path, plan.source, task)) for task in plan.tasks)
    programs.make("sbatch", "Submitted batch job 7\n")
    for name in ("srun", "squeue", "scontrol"):
        programs.make(name)
    with busy.lock():
        receipt = submit_to_slurm(tmp_path, [plan], Site(), Request(), None, is_restart=True)
    (item,) = receipt.submitted
    assert (item.run, item.job_id) == (free, "7")
    assert [old.has_results for old in free.earlier] == [True]
    (left,) = receipt.skipped
    assert left.run == busy
    assert "already being run by pid" in str(left.error)
    assert busy.has_results
    assert (busy.earlier, busy.read_submission()) == ([], None)


def test_a_run_that_never_began_has_nothing_to_put_aside(tmp_path, plan):
    run = create_run(tmp_path, plan.source, plan.tasks[0])
    (item,) = draft_here(tmp_path, [plan], is_restart=True).submitted
    assert item.run == run
    assert prepare(run, plan.source, plan.tasks[0], True) is None
    assert run.earlier == []


def test_no_two_jobs_of_a_run_share_a_name(tmp_path, plan, ended, programs):
    """SLURM is asked by name: the new job must not be taken for the one that has ended."""
    del programs  # and with it every command of SLURM
    seen = []
    for _ in range(2):
        (array,) = draft_for_slurm(
            tmp_path, [plan], Site(), Request(), None, is_restart=True
        ).arrays
        seen.append(array.job_name)
        ended.write_submission(
            Submission(scheduler="slurm", job_id="1", job_name=array.job_name, number=array.number)
        )
        finish(ended)
        prepare(ended, plan.source, plan.tasks[0], True)
    assert len(set(seen)) == 2


def test_the_end_of_an_earlier_worker_says_nothing_about_the_new_life(tmp_path, plan, ended):
    """A worker is reaped a moment after its last word, when the run may have begun anew."""
    prepare(ended, plan.source, plan.tasks[0], True)
    note_end(ended, 123, 0)
    ended.write_submission(Submission(scheduler="local", job_id="local-1", worker_pid=124))
    note_end(ended, 123, 0)
    assert (ended.read_outcome(), ended.read_attempts()) == (None, [])
    note_end(ended, 124, 0)
    assert examine(ended).state is State.FAILED
