"""vmcjob prune: frees what nobody needs, and nothing else."""

import fcntl
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.shell import Shell, busy_slot, finish
from tests.runs import make_record, make_run, sleeping_process
from tests.store import reference
from vmcjob.rundir import Outcome, OutcomeRecord, Process, RunDir, Submission
from vmcjob.store.archive import pack, remove_directory
from vmcjob.store.files import archive_of

DAY_S = 86400.0


@pytest.fixture
def shell(tmp_path) -> Shell:
    return Shell(tmp_path)


def make(shell: Shell, name: str, days: float, outcome: Outcome = Outcome.FINISHED) -> RunDir:
    """A run that ended so many days ago, with a log of 8 kB."""
    then = time.time() - days * DAY_S
    run = make_run(shell.runs, f"{name}-0123456789", created=then - 1)
    finish(run, time=then)
    run.write_outcome(OutcomeRecord(outcome=outcome, time=then))
    run.log_path.write_bytes(8192 * b"x")
    os.utime(run.log_path, (then, then))
    return run


def give_job(run: RunDir, job_name: str, days: float) -> Path:
    """A job's folder that the run's latest submission refers to."""
    then = time.time() - days * DAY_S - 60
    run.write_submission(
        Submission(scheduler="slurm", job_id="7", job_name=job_name, submitted_at=then)
    )
    folder = run.path.parent / ".slurm" / job_name
    folder.mkdir(parents=True)
    (folder / "7_submission.sh").write_text("#!/bin/sh\n")
    age(folder, days)
    return folder


def age(folder: Path, days: float) -> None:
    """Make a folder, and what is in it, so old."""
    then = time.time() - days * DAY_S
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then), follow_symlinks=False)


def prune(shell: Shell, *options: str) -> list[tuple[str, str]]:
    done = shell.run("prune", "--json", *options)
    assert done.returncode == 0, done.stderr
    return sorted((item["what"], item["of"]) for item in json.loads(done.stdout)["items"])


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_a_dry_run_foretells_what_goes_and_touches_nothing(shell):
    """Old logs of what is finished, jobs that nobody asks about, and what was put aside."""
    old, young = make(shell, "old", 40), make(shell, "young", 5)
    failed = make(shell, "failed", 40, Outcome.FAILED)
    give_job(old, "old-job", 40)
    give_job(failed, "failed-job", 40)
    for name, days in (("nobodys", 40), ("being-filled", 0)):
        (shell.runs / ".slurm" / name).mkdir()
        age(shell.runs / ".slurm" / name, days)
    again = make(shell, "again", 50)
    aside = again.start_over(make_record(again.path.name), 'name = "h2"\n')
    before = tree(shell.runs)
    told = prune(shell, "-n")
    assert told == [
        ("aside", aside.path.name),
        ("job", "nobodys"),
        ("job", "old-job"),
        ("log", old.path.name),
    ]
    assert tree(shell.runs) == before
    assert prune(shell) == told
    gone = before - tree(shell.runs)
    assert {path.split("/")[0] for path in gone} == {".old", ".slurm", old.path.name}
    assert old.has_results
    assert not old.log_path.exists()
    assert young.log_path.exists()
    assert failed.log_path.exists()
    assert (shell.runs / ".slurm" / "failed-job").is_dir()
    assert prune(shell) == []


def test_it_says_how_much_it_would_free_and_how_much_it_did(shell):
    make(shell, "old", 40)
    told = shell.run("prune", "-n")
    assert told.stdout.splitlines()[1].split()[2:] == ["40", "d", "1", "8.19", "kB"]
    assert "would free 8.19 kB in 1 file; without -n, this is removed" in told.stderr
    assert "freed 8.19 kB in 1 file" in shell.run("prune").stderr
    assert "freed 0 B in 0 files" in shell.run("prune").stderr


def test_results_go_only_if_their_state_is_named(shell):
    failed, finished = make(shell, "failed", 40, Outcome.FAILED), make(shell, "finished", 40)
    young = make(shell, "young", 1, Outcome.FAILED)
    assert prune(shell, "--state", "failed", "--older-than", "2") == [
        ("log", finished.path.name),
        ("run", failed.path.name),
    ]
    assert not failed.path.exists()
    assert finished.has_results
    assert young.has_results
    assert prune(shell, "--state", "finished", "--older-than", "0") == [("run", finished.path.name)]
    assert [path.name for path in shell.runs.iterdir() if not path.name.startswith(".")] == [
        young.path.name
    ]


@pytest.mark.parametrize("state", ["running", "queued", "stopping", "nonsense"])
def test_a_state_in_which_something_will_happen_cannot_be_named(shell, state):
    make(shell, "old", 40)
    done = shell.run("prune", "--state", state)
    assert done.returncode == 2
    assert f"got '{state}'" in done.stderr
    assert "blocked, cancelled, dead, diverged, exhausted, failed, finished, new, preempted" in (
        done.stderr
    )


def test_a_run_that_is_locked_stays_and_is_named(shell):
    """Somebody works on it, whatever its records say."""
    locked, free = make(shell, "locked", 40), make(shell, "free", 40)
    with open(locked.lock_path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = shell.run("prune", "--json", "--state", "finished")
    assert done.returncode == 1
    assert "already being run" in done.stderr
    assert [item["of"] for item in json.loads(done.stdout)["items"]] == [free.path.name]
    assert locked.log_path.exists()
    assert not free.path.exists()


def test_live_runs_are_untouched_however_old_they_are(shell):
    """Queued for weeks, or running since then: neither their logs nor the records of their jobs."""
    running, waiting = make(shell, "running", 40), make(shell, "waiting", 40, Outcome.PREEMPTED)
    running.clear_outcome()
    folder = give_job(waiting, "waiting-job", 40)
    (shell.cwd / "squeue").write_text("#!/bin/sh\necho '7|waiting-job|PENDING|N/A|Priority'\n")
    (shell.cwd / "squeue").chmod(0o755)
    with sleeping_process() as worker:
        beat = running.read_heartbeat()
        assert beat is not None
        process = Process.of_pid(worker.pid)
        running.write_heartbeat(replace(beat, pid=process.pid, process_start=process.start))
        every = [word for state in STATES for word in ("--state", state)]
        assert prune(shell, "--older-than", "0", *every) == []
    assert running.log_path.exists()
    assert folder.is_dir()


STATES = ("new", "finished", "cancelled", "preempted", "diverged", "failed", "dead")


def test_where_slurm_cannot_be_asked_nothing_goes(shell):
    """It alone knows what still waits."""
    old, other = make(shell, "old", 40), make(shell, "other", 40, Outcome.PREEMPTED)
    give_job(other, "job", 40)
    (shell.cwd / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (shell.cwd / "squeue").chmod(0o755)
    done = shell.run("prune", "--state", "preempted")
    assert done.returncode == 5
    assert old.log_path.exists()
    assert other.has_results


def test_selected_runs_are_pruned_alone(shell):
    old, other = make(shell, "old", 40), make(shell, "other", 40)
    give_job(old, "old-job", 40)
    assert prune(shell, "old") == [("log", old.path.name)]
    assert other.log_path.exists()
    (shell.cwd / "elsewhere").mkdir()
    done = Shell(shell.cwd, {"VMCJOB_RUNS": "elsewhere"}).run("prune", str(other.path))
    assert done.returncode == 2
    assert "is not in" in done.stderr
    assert other.log_path.exists()


def test_while_somebody_submits_nothing_is_decided(shell):
    """A finished run may be begun anew just now."""
    old = make(shell, "old", 40)
    with busy_slot(shell.runs), open(shell.runs / ".local" / "queue.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with shell.start("prune") as pruning:
            time.sleep(1.5)
            assert old.log_path.exists()
            fcntl.flock(lock, fcntl.LOCK_UN)
            pruning.communicate()
    assert not old.log_path.exists()


def test_what_killed_commands_left_behind_goes_and_links_are_not_followed(shell):
    run = make(shell, "old", 40)
    outside = shell.cwd / "outside"
    outside.mkdir()
    (outside / "precious").write_text("")
    remains = shell.runs / f".{run.path.name}.0a1b2c3d"
    remains.mkdir()
    (remains / "link").symlink_to(outside)
    age(remains, 40)
    assert ("remains", remains.name) in prune(shell)
    assert not remains.exists()
    assert (outside / "precious").exists()


def make_archived(shell: Shell, name: str) -> RunDir:
    """An old run with results that were archived, and are in their directory still."""
    run = make(shell, name, 40)
    shutil.rmtree(run.store_path)
    reference.go_on(reference.create(run.store_path, run_id=run.path.name))
    assert pack(run.store_path, run.path.name) is None
    age(run.store_path, 40)
    return run


def test_archives_stay_whatever_is_named(shell):
    """Of runs in a named state too, and of results that were put aside; what stays is told."""
    run, other = make_archived(shell, "archived"), make(shell, "other", 40)
    remove_directory(run.store_path)
    done = shell.run("prune", "--state", "finished", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [(item["what"], item["of"]) for item in document["items"]] == [
        ("run", other.path.name),
        ("log", run.path.name),
    ]
    assert document["archived"] == [run.path.name]
    aside = run.start_over(make_record(run.path.name), 'name = "h2"\n')
    shell.run("prune", "--state", "new", "--older-than", "0")
    assert not run.path.exists()
    assert archive_of(aside.store_path).is_file()


def test_what_is_archived_goes_where_it_is_not_if_that_is_asked_for(shell):
    """Once they are found equal, and not before they are old."""
    run = make_archived(shell, "archived")
    run.log_path.unlink()
    assert prune(shell) == []
    assert prune(shell, "--archived", "--older-than", "41") == []
    assert prune(shell, "-n", "--archived") == [("copy", run.path.name)]
    assert run.store_path.is_dir()
    assert prune(shell, "--archived") == [("copy", run.path.name)]
    assert not run.store_path.exists()
    assert archive_of(run.store_path).is_file()
    assert prune(shell, "--archived") == []
    reference.assert_holds(run.store_path, reference.N_COMMITS)


def test_a_directory_that_is_not_equal_to_its_archive_stays_and_is_named(shell):
    """A dry run foretells that, too; what is equal goes all the same."""
    differs, equal = make_archived(shell, "differs"), make_archived(shell, "equal")
    (differs.store_path / "evaluate/energy/c/0").unlink()
    for option, is_there in (("-n", True), ("--json", False)):
        done = shell.run("prune", "--archived", option)
        assert done.returncode == 1
        archive = archive_of(differs.store_path)
        assert f"{archive}: differs from run.zarr in its list of files" in done.stderr
        assert f"copy  {equal.path.name}" in done.stdout or option == "--json"
        assert equal.store_path.is_dir() is is_there
    assert differs.store_path.is_dir()


def test_runs_that_are_nowhere_are_not_found(shell):
    """As by all other commands; where nobody looks by default, there is nothing to free."""
    done = shell.run("prune", "--runs", "absent")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "absent: there is no such directory; --runs names it\n"
    assert "freed 0 B in 0 files" in shell.run("prune").stderr
