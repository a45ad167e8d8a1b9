"""Runs that are too many for one array: how many of them run at a time; sbatch is a stand-in."""

import re

import pytest

from tests.cli.shell import finish
from tests.submissions import draft_for_slurm, submit_to_slurm
from vmcjob.plan import Plan, make_plan, make_trained_on
from vmcjob.resources import Request
from vmcjob.rundir import RunDir
from vmcjob.scheduler.records import create_run
from vmcjob.site import Site
from vmcjob.spec import parse_spec

SPEC = """
name = "h"
seeds = {seeds}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
"""
ASKED = re.compile(r"^#SBATCH --((?:array|dependency)=\S+)", re.MULTILINE)
AFTER = re.compile(r"(afterany:)(\S+)")
# Numbers its jobs, and keeps their scripts.
SBATCH = """#!/bin/sh
case "$*" in *--test-only*) ! /bin/grep afterany; exit; esac
echo x >> {folder}/jobs
number=$(/usr/bin/wc -l < {folder}/jobs)
/bin/cp "$1" {folder}/job-$number
echo "Submitted batch job $number"
"""


@pytest.fixture
def submit(programs, tmp_path):
    """Submits so many runs to a cluster whose arrays have three elements; what sbatch was told."""
    programs.make("scontrol", "MaxArraySize            = 4\n")
    for name in ("srun", "squeue"):
        programs.make(name)
    sbatch = programs.folder / "sbatch"
    sbatch.write_text(SBATCH.format(folder=programs.folder))
    sbatch.chmod(0o755)

    def give(n_runs: int, max_parallel: int | None, *extra: str) -> list[str]:
        plans = [make_plan(parse_spec(SPEC.format(seeds=list(range(n_runs))), "h.toml"))]
        request = tmp_path / "runs", plans, Site(), Request(extra=extra), max_parallel
        drawn = draft_for_slurm(*request).arrays
        receipt = submit_to_slurm(*request)
        assert len(receipt.submitted) == n_runs
        told = [asked(path.read_text()) for path in sorted(programs.folder.glob("job-*"))]
        # What is shown before has a name where the number of a job is not known yet.
        names = {array.job_name: str(number) for number, array in enumerate(drawn, start=1)}
        shown = [asked(array.script) for array in drawn]
        assert [AFTER.sub(lambda m: m[1] + names[m[2]], text) for text in shown] == told
        return told

    return give


def asked(script: str) -> str:
    """Size of the array, how many of it at a time, and what it waits for."""
    return " ".join(found for found in ASKED.findall(script))


def test_arrays_share_what_may_run_at_a_time(submit):
    """Each given the whole of it, they would fill the cluster with as many as there are arrays."""
    assert submit(7, 5) == ["array=0-2%2", "array=0-2%2", ""]


def test_no_more_is_given_to_an_array_than_it_has(submit):
    assert submit(7, 6) == ["array=0-2%3", "array=0-2%2", ""]


def test_more_arrays_than_may_run_at_a_time_go_one_after_the_other(submit):
    assert submit(5, 1) == ["array=0-2%1", "array=0-1%1 dependency=afterany:1"]


def test_so_many_rows_of_arrays_as_may_run_at_a_time(submit):
    told = submit(10, 2)
    waits = ("", "", " dependency=afterany:1", " dependency=afterany:2")
    arrays = ("array=0-2%1", "array=0-2%1", "array=0-2%1", "")
    assert told == [(array + wait).strip() for array, wait in zip(arrays, waits, strict=True)]


def test_without_a_limit_all_may_run(submit):
    assert submit(5, None) == ["array=0-2%3", "array=0-1%2"]


def test_runs_that_train_on_from_finished_runs_are_one_array(programs, tmp_path):
    """Each begins with another run, but nothing has to be waited for: one job each was shown."""
    origins = make_plan(parse_spec(SPEC.format(seeds=[0, 1, 2]), "h.toml")).tasks
    for task in origins[:2]:
        finish(create_run(tmp_path, "h.toml", task))
    create_run(tmp_path, "h.toml", origins[2])  # whose job the new run has to wait for
    plans = [Plan("h.toml", (make_trained_on(task, 200),), is_whole=False) for task in origins]
    going = draft_for_slurm(tmp_path, plans[:2]).arrays
    assert [asked(array.script) for array in going] == ["array=0-1%2"]
    finish(RunDir(tmp_path / origins[2].run_id))
    assert [len(array.runs) for array in draft_for_slurm(tmp_path, plans).arrays] == [3]


def test_what_the_user_waits_for_is_waited_for_too(submit):
    told = submit(5, 1, "dependency=afterok:99")
    assert told == [
        "array=0-2%1 dependency=afterok:99",
        "array=0-1%1 dependency=afterok:99,afterany:1",
    ]
