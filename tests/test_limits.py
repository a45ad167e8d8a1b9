"""Submissions larger than a cluster takes, and what it is asked before; sbatch is a stand-in."""

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.shell import Shell
from tests.runs import Programs
from vmcjob.cli.app import app
from vmcjob.rundir import list_runs
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.slurm.maintenance import describe_maintenance
from vmcjob.scheduler.slurm.queue import explain
from vmcjob.scheduler.slurm.script import load_submitit

SPEC = """
name = "h"
seeds = {seeds}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[resources]
time = "00:30:00"
mem = "{mem}"
"""
# Counts the jobs that it has, and answers as SLURM 22.05 does where limits are enforced.
SBATCH = """#!{python}
import re, sys
from pathlib import Path

folder, limit = Path({folder!r}), int(Path({folder!r}, "limit").read_text())
count = folder / "count"
n_before = int(count.read_text()) if count.exists() else 0
is_test = "--test-only" in sys.argv
text = sys.stdin.read() if is_test else Path(sys.argv[-1]).read_text()
array = re.search(r"^#SBATCH --array=0-(\\d+)", text, re.MULTILINE)
n_jobs = int(array[1]) + 1 if array else 1
with open(folder / "sbatch.calls", "a") as calls:
    calls.write(f"{{'test' if is_test else 'submit'}} {{n_jobs}}\\n")
if n_before + n_jobs > limit:
    print((folder / "refusal").read_text(), file=sys.stderr)
    sys.exit(1)
if is_test:
    where = "using 1 processors on nodes n1 in partition gpu"
    print(f"sbatch: Job 9 to start at 1795346093 {{where}}", file=sys.stderr)
else:
    count.write_text(str(n_before + n_jobs))
    print(f"Submitted batch job {{n_before + 1}}")
"""
NAMED = """sbatch: error: AssocMaxSubmitJobLimit
allocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time \
limits)"""
VAGUE = NAMED.splitlines()[1]


class LimitedCluster(Shell):
    """A shell on a cluster that takes so many jobs, and no more."""

    def limit(self, n_jobs: int, refusal: str = NAMED) -> None:
        (self.cwd / "bin" / "limit").write_text(str(n_jobs))
        (self.cwd / "bin" / "refusal").write_text(refusal)

    def calls(self) -> list[str]:
        return (self.cwd / "bin" / "sbatch.calls").read_text().splitlines()

    def spec(self, n_seeds: int, name: str = "h.toml", mem: str = "1G", first: int = 0) -> str:
        text = SPEC.format(seeds=list(range(first, first + n_seeds)), mem=mem)
        (self.cwd / name).write_text(text)
        return name


@pytest.fixture
def cluster(tmp_path) -> LimitedCluster:
    folder = tmp_path / "bin"
    folder.mkdir()
    programs = Programs(folder)
    programs.make("scontrol", "PartitionName=gpu Default=YES MaxTime=01:00:00\n")
    programs.make("srun")
    sbatch = folder / "sbatch"
    sbatch.write_text(SBATCH.format(python=sys.executable, folder=str(folder)))
    sbatch.chmod(0o755)
    return LimitedCluster(tmp_path, {"PATH": str(folder)})


def states(root: Path) -> list[State]:
    return [examine(run).state for run in list_runs(root)]


@pytest.mark.parametrize("refusal", [NAMED, VAGUE])
def test_as_many_jobs_as_there_is_room_for_are_submitted_and_the_rest_when_asked_again(
    cluster, refusal
):
    """SLURM would refuse the whole array; nobody wants to find out by hand how many it takes."""
    cluster.limit(7, refusal)
    spec = cluster.spec(20)
    done = cluster.run("submit", "--json", spec)
    assert done.returncode == 5
    answer = json.loads(done.stdout)
    assert len(answer["submitted"]) == 7
    reasons = {item["reason"] for item in answer["skipped"]}
    assert reasons == {"left for later: SLURM takes no more jobs now"}
    limit = " (AssocMaxSubmitJobLimit)" if refusal == NAMED else ""
    assert done.stderr.count(f"takes 7 of 20 jobs now{limit}; submit again when others") == 1
    assert [call for call in cluster.calls() if call.startswith("submit")] == ["submit 7"]
    assert sorted(states(cluster.runs)) == [State.NEW] * 13 + [State.QUEUED] * 7
    cluster.limit(1000)
    assert cluster.run("resume", "h").returncode == 0
    assert cluster.calls()[-1] == "submit 13"


def test_arrays_that_do_not_fit_together_are_cut_where_the_limit_is(cluster):
    """Each alone would be taken: SLURM counts what was submitted a moment ago."""
    cluster.limit(5)
    specs = [cluster.spec(4), cluster.spec(4, "more.toml", mem="2G", first=4)]
    done = cluster.run("submit", *specs)
    assert done.returncode == 5
    assert "takes 1 of 4 jobs now" in done.stderr
    submitted = [call for call in cluster.calls() if call.startswith("submit")]
    assert submitted == ["submit 4", "submit 1"]


@pytest.mark.parametrize(
    ("limit", "refusal", "words"),
    [
        (0, NAMED, "SLURM takes no more jobs now (AssocMaxSubmitJobLimit); submit again when"),
        (0, VAGUE, "sbatch: Job violates accounting/QOS policy"),  # of time, as it turns out
        (2, "allocation failure: Invalid account", "sbatch: Invalid account"),
    ],
)
def test_what_is_not_taken_at_all_is_one_sentence_before_anything_is_written(
    cluster, limit, refusal, words
):
    cluster.limit(limit, refusal)
    done = cluster.run("submit", cluster.spec(3))
    assert done.returncode == 5
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 2  # where it goes, and why not
    assert not cluster.runs.exists()


def test_what_only_the_submission_itself_refuses_is_said_once_and_leaves_no_runs(cluster):
    """sbatch --test-only takes some requests that sbatch refuses."""
    sbatch = cluster.cwd / "bin" / "sbatch"
    words = "sbatch: error: Batch job submission failed: Invalid gres"
    sbatch.write_text(f'#!/bin/sh\n[ "$1" = --test-only ] || {{ echo "{words}" >&2; exit 1; }}\n')
    done = cluster.run("submit", cluster.spec(2))
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.count("Invalid gres") == 1
    assert list_runs(cluster.runs) == []


def test_a_check_says_what_the_cluster_would_do_and_writes_nothing(cluster):
    cluster.limit(2)
    spec = cluster.spec(2)
    done = cluster.run("submit", "-n", "--check", "--json", spec)
    assert done.returncode == 0
    (job,) = json.loads(done.stdout)["jobs"]
    assert job["check"] == {
        "jobs_taken": 2,
        "earliest_start": 1795346093.0,
        "nodes": "n1",
        "partition": "gpu",
        "note": None,
        "refusal": None,
    }
    done = cluster.run("submit", "-n", "--check", spec)
    assert "SLURM would take 2 jobs in partition gpu; the first could start at 20" in done.stderr
    cluster.limit(1)
    done = cluster.run("submit", "-n", "--check", spec)
    assert done.returncode == 5
    assert "takes 1 of 2 jobs now" in done.stderr
    assert not cluster.runs.exists()
    assert not any(call.startswith("submit") for call in cluster.calls())


def test_a_silent_accounting_is_no_silent_slurm(cluster):
    """A database that was down refused jobs which sbatch would have taken."""
    cluster.limit(2)
    programs = Programs(cluster.cwd / "bin")
    partition = "PartitionName=gpu Default=YES MaxTime=01:00:00\n"
    programs.make("scontrol", f"{partition}AccountingStorageEnforce = limits\n")
    programs.make("sacctmgr", code=1, error="sacctmgr: error: slurmdbd: Connection refused\n")
    done = cluster.run("submit", "-n", "--check", cluster.spec(2))
    assert len(programs.calls("sacctmgr")) == 1  # and before sbatch
    assert (done.returncode, "did not answer" in done.stderr) == (0, False), done.stderr
    assert "SLURM would take 2 jobs" in done.stderr


NOW = 1_795_000_000


@pytest.mark.parametrize(
    ("wall_time_s", "starts_in_s", "name", "left"),
    [
        (3600.0, 9000.0, "root_3", "0-00:20:00"),
        (2 * 86400.0, 200_000.0, "root_3", "0-00:20:00"),
        (600.0, 9000.0, None, None),  # it would fit in before: something else is in its way
        (3600.0, 30.0, None, None),  # it starts at once, elsewhere
        (3600.0, 1000.0, None, None),  # before the maintenance
        (3600.0, None, None, None),
    ],
)
def test_the_maintenance_that_a_job_would_wait_for_is_named(
    programs, monkeypatch, wall_time_s, starts_in_s, name, left
):
    """And the wall time that may still fit in before it."""
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    end = NOW + 8000
    programs.make(
        "scontrol",
        f"ReservationName=past StartTime={NOW - 99} EndTime={NOW - 9} Flags=MAINT\n"
        f"ReservationName=course StartTime={NOW + 9} EndTime={end} Flags=SPEC_NODES\n"
        f"ReservationName=root_3 StartTime={NOW + 1230} EndTime={end} Flags=MAINT,ALL_NODES\n",
    )
    said = describe_maintenance(wall_time_s, None if starts_in_s is None else NOW + starts_in_s)
    if name is None:
        assert said == ""
        return
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(end))
    assert said == (
        f"the maintenance reservation {name} comes first, until {until}; "
        f"a wall time below {left} (-t) may start before it"
    )


def test_a_job_that_waits_for_a_maintenance_says_so(programs, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    times = f"StartTime={NOW - 99} EndTime={NOW + 900}"
    programs.make("scontrol", f"ReservationName=root_4 {times} Flags=MAINT\n")
    assert "root_4 lasts until" in describe_maintenance(3600.0, NOW + 900.0)
    assert describe_maintenance(3600.0, NOW + 300.0) == "", "elsewhere, before its end"
    assert explain("ReqNodeNotAvail, Reserved for maintenance").startswith(
        "waits for the end of a maintenance"
    )
    assert explain("ReqNodeNotAvail, UnavailableNodes:n[1-2]") == "its nodes are down or reserved"


def test_no_room_on_an_empty_queue_is_told_as_the_oddity_that_it_is(cluster):
    """A slurmctld that has just restarted has counted wrongly."""
    cluster.limit(0)
    squeue = Programs(cluster.cwd / "bin")
    squeue.make("squeue")
    done = cluster.run("submit", "-n", "--check", cluster.spec(3))
    assert "though no job of yours is in the queue" in done.stderr
    assert "slurmctld has just restarted" in done.stderr
    squeue.make("squeue", "4\n")
    done = cluster.run("submit", "-n", "--check", cluster.spec(3))
    assert "takes no more jobs now (AssocMaxSubmitJobLimit); submit again" in done.stderr


def test_a_check_names_all_that_would_be_refused_at_once(cluster):
    cluster.limit(0, "allocation failure: Invalid account")
    (cluster.cwd / "bin" / "scontrol.out").write_text(
        "PartitionName=gpu Default=YES MaxTime=00:10:00\n"
    )
    specs = [cluster.spec(1), cluster.spec(2, "more.toml", mem="2G", first=4)]
    done = cluster.run("submit", "-n", "--check", *specs)
    assert done.returncode == 5
    assert done.stderr.count("Invalid account") == 2


def test_an_image_that_several_jobs_lack_is_told_once(cluster):
    """A chain of ten distances had ten times the same line."""
    cluster.limit(9)
    (cluster.cwd / "site.toml").write_text('[container]\nimage = "absent.sif"\n')
    specs = [cluster.spec(1), cluster.spec(2, "more.toml", mem="2G", first=4)]
    done = cluster.run("submit", "-n", "--check", "--site", "site.toml", *specs)
    assert done.returncode == 6
    assert done.stderr.count("absent.sif: cannot be read: No such file") == 1


def test_a_check_needs_a_cluster_and_a_dry_run(cluster):
    for options, words in [
        (("--check",), "--check asks a cluster what it would do: goes with -n"),
        (("-n", "--check", "--local"), "the runs stay on this machine"),
    ]:
        done = cluster.run("submit", *options, cluster.spec(1))
        assert done.returncode == 2
        assert words in done.stderr
        assert not cluster.runs.exists()


def test_a_dry_run_without_an_answer_shows_the_script_and_what_is_not_known(
    programs, tmp_path, monkeypatch
):
    """A controller that hangs kept `submit -n --check` for six minutes, and nothing was shown."""
    load_submitit()  # whose loggers would keep the streams of the runner
    monkeypatch.setattr("vmcjob.scheduler.slurm.commands.HURRIED_S", 1.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VMCJOB_SITE", raising=False)
    for name in ("sbatch", "scontrol", "squeue", "sacctmgr"):
        programs.make(name, hangs=True)
    Path("h.toml").write_text(SPEC.format(seeds=[0, 1], mem="1G"))
    done = CliRunner().invoke(app, ["submit", "-n", "h.toml"])
    assert (done.exit_code, "#SBATCH --mem=1G\n" in done.stdout) == (0, True), done.output
    words = "warning: the batch system did not answer (scontrol: no answer within 1 s). Not known: "
    assert words in done.stderr
    done = CliRunner().invoke(app, ["submit", "-n", "--check", "h.toml"])
    assert done.exit_code == 5
    words = "no cluster answers; with --local, runs stay here: scontrol: no answer within 1 s\n"
    assert done.stderr.endswith(words)
