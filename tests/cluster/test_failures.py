"""What goes wrong on a real SLURM, and that it is told, contained and repaired."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import PATIENCE_S, Room, assert_same, n_starts, series
from vmcjob.rundir import RunDir

pytestmark = pytest.mark.timeout(3600)


def test_one_failed_task_of_a_sweep_is_named_and_resumed_alone(room):
    """Four tasks in one array, two at a time; the others finish as if nothing had happened."""
    widths = '[sweep]\n"sampler.width" = [0.2, 0.3]'
    spec = room.spec(seeds=2, train=5, evaluate=40, extra=widths)
    drawn = json.loads(room.run("submit", "-n", "--json", spec))
    (job,) = drawn["jobs"]
    assert len(job["run_ids"]) == 4
    # A store that cannot be opened stands in the way of the third run.
    # With so little memory SLURM itself would run all four at a time.
    options = ("--json", "--mem=500M", "--max-parallel=2")
    submitted = json.loads(room.run("submit", *options, spec))["submitted"]
    assert len({item["job_id"].partition("_")[0] for item in submitted}) == 1
    broken = Path(submitted[2]["run_dir"])
    (broken / "run.zarr").write_text("not a store")
    most = 0

    def count_running() -> bool:
        nonlocal most
        states = room.states()
        most = max(most, states["RUNNING"])
        return states == {"FINISHED": 3, "FAILED": 1}

    room.wait_until(count_running, "three have finished and one has failed")
    assert most <= 2
    (failed,) = [row for row in room.status() if row["state"] == "FAILED"]
    assert failed["run_id"] == broken.name
    assert "run.zarr" in failed["message"]
    table = room.start("aggregate", "--json")
    assert table.returncode == 3
    (excluded,) = json.loads(table.stdout)["excluded"]
    assert excluded["run_id"] == broken.name
    assert "run.zarr" in excluded["reason"]
    (broken / "run.zarr").unlink()
    again = json.loads(room.run("resume", "--json", "h"))
    assert [item["run_id"] for item in again["submitted"]] == [broken.name]
    room.wait_for(FINISHED=4)
    # One of them begins anew; one that somebody works on, whatever its files say, does not.
    first, second = (RunDir(Path(item["run_dir"])) for item in submitted[:2])
    before = series(first)
    with second.lock():
        done = room.start("rerun", "--json", first.path.name, second.path.name)
    assert done.returncode == 1
    assert f"{second.path}: already being run by pid" in done.stderr
    assert [item["run_id"] for item in json.loads(done.stdout)["submitted"]] == [first.path.name]
    room.wait_for(FINISHED=4)
    assert [len(run.earlier) for run in (first, second)] == [1, 0]
    assert_same(first, before)


def test_a_controller_that_stops_while_submitting_and_watching(room):
    """Exit code 5 and SLURM's own words; no orphan, no lost run, and the next submit repairs.

    Stopped like this it takes what it is told, and answers when nobody listens any more: sbatch
    fails, and there is a job.
    """
    room.cluster.wait_until_idle()
    spec, controller = room.spec(train=5, evaluate=40), room.cluster.pid("slurmctld")
    stopping = wrap(room, "sbatch", f'[ "$1" = --test-only ] || kill -STOP {controller}')
    try:
        done = stopping.start("submit", "--extra", "hold", spec)
        assert done.returncode == 5
        assert "sbatch: " in done.stderr
        assert "timed out" in done.stderr.lower()
        done = room.start("status")
        assert done.returncode == 5
        assert "squeue: " in done.stderr
        assert room.only_run().path.name in done.stdout  # what is known is shown all the same
    finally:
        os.kill(controller, signal.SIGCONT)
    room.wait_until(lambda: room.start("status").returncode == 0, "the controller answers")
    room.wait_for(QUEUED=1)
    (job_id,) = room.cluster.job_ids(room.cwd)
    assert json.loads(room.run("submit", "--json", spec))["submitted"] == []
    room.cluster.call("scontrol", "release", job_id)
    room.wait_for(FINISHED=1)
    assert room.status()[0]["job_id"] == job_id
    assert "# script of its job: " in room.run("show", "h")
    assert n_starts(room.only_run()) == 1


def test_a_controller_that_is_gone(room):
    """Nothing new is begun, and what was waiting still waits when it is back."""
    room.cluster.wait_until_idle()
    room.run("submit", "--extra", "hold", room.spec(train=5, evaluate=40))
    os.kill(room.cluster.pid("slurmctld"), signal.SIGTERM)  # it writes down what it knows
    words = "Unable to contact slurm controller"
    try:
        room.wait_until(lambda: words in room.start("status").stderr, "it is gone")
        done = room.start("status")
        assert done.returncode == 5
        assert "h-" in done.stdout
        done = room.start("submit", room.spec(seeds=2))
        assert done.returncode == 5
        assert words in done.stderr
        assert len(room.list()) == 1
    finally:
        room.cluster.start("slurmctld")
    room.wait_for(QUEUED=1)
    room.cluster.call("scontrol", "release", *room.cluster.job_ids(room.cwd))
    room.wait_for(FINISHED=1)


def test_a_submission_that_died_after_sbatch_is_found_again(room):
    """The record comes before the job: a crash in between leaves neither an orphan nor a twin."""
    spec = room.spec(train=5, evaluate=40)
    room.run("submit", spec)
    run = room.only_run()
    submission = run.read_submission()
    assert submission is not None
    run.write_submission(replace(submission, job_id=None))  # as if we had died before the answer
    (row,) = room.status()
    assert row["state"] in ("QUEUED", "RUNNING")
    again = json.loads(room.run("submit", "--json", spec))
    assert again["submitted"] == []
    room.wait_for(FINISHED=1)


def test_a_submission_that_died_before_sbatch_is_taken_up_again(room):
    spec = room.spec(train=5, evaluate=40)
    room.run("submit", "--extra", "hold", spec)
    run = room.only_run()
    submission = run.read_submission()
    assert submission is not None
    assert submission.job_id is not None
    assert room.status()[0]["message"].startswith("held by its owner")
    room.cluster.call("scancel", submission.job_id)
    run.write_submission(replace(submission, job_id=None, job_name="h-00000000"))
    assert room.states() == {"NEW": 1}
    room.run("submit", spec)
    room.wait_for(FINISHED=1)


def test_what_the_cluster_refuses_leaves_nothing_behind(room):
    """It would take the last two, and never start them."""
    too_long = ("-t", "99:00:00")
    for options in (("-p", "absent"), ("--gres", "gpu:9"), too_long, ("-p", "gpu", *too_long)):
        done = room.start("submit", *options, room.spec())
        assert done.returncode == 5
        assert not room.runs.exists()


def test_a_job_whose_image_was_replaced_has_failed_and_says_so_everywhere(room):
    """Its worker never starts, and nobody waits for it: the next submit takes the run up."""
    image, site = room.cwd / "vmc.sif", room.cwd / "site.toml"
    image.write_text("an image")
    site.write_text(f'[container]\nimage = "{image}"\n')
    place = replace(room, extra={"VMCJOB_SITE": str(site)})
    place.run("submit", "--extra", "hold", place.spec(train=5, evaluate=40))
    image.write_text("another one")
    with place.begin("submit", "--follow", "h.toml") as following:
        assert following.stderr is not None
        assert any("  queued" in line for line in following.stderr)  # it looks on
        place.cluster.call("scontrol", "release", *place.cluster.job_ids(place.cwd))
        assert "has changed since" in following.communicate(timeout=PATIENCE_S)[0]
        assert following.returncode == 3
    (row,) = place.status()
    assert (row["state"], "has changed since" in row["message"]) == ("FAILED", True)
    assert "the worker was not started: " in place.run("logs", "h")
    site.write_text("")
    place.run("submit", "h.toml")
    place.wait_for(FINISHED=1)


def wrap(room: Room, program: str, line: str) -> Room:
    """A room of a user who has a line of shell before a program of SLURM."""
    folder, path = room.cwd / "bin", room.environment["PATH"]
    folder.mkdir(exist_ok=True)
    wrapper = folder / program
    wrapper.write_text(f'#!/bin/sh\n{line}\nexec {shutil.which(program, path=path)} "$@"\n')
    wrapper.chmod(0o755)
    return replace(room, extra={**room.extra, "PATH": f"{folder}:{path}"})


def test_filters_and_banners_of_a_users_shell_hide_no_job(room):
    """Nor do they move one: a run that looks dead would be submitted a second time."""
    noisy = room
    for name in ("squeue", "scancel", "sbatch", "scontrol"):
        noisy = wrap(noisy, name, 'echo "Be | kind | to | job 1 | of the queue"')
    filters = ("SQUEUE_PARTITION", "SCANCEL_PARTITION", "SACCT_FEDERATION", "SBATCH_PARTITION")
    noisy = replace(noisy, extra={**noisy.extra} | dict.fromkeys(filters, "scavenge"))
    spec = noisy.spec(seeds=2, train=5, evaluate=40)
    noisy.run("submit", "--extra", "hold", spec)
    assert noisy.states() == {"QUEUED": 2}
    assert json.loads(noisy.run("submit", "--extra", "hold", "--json", spec))["submitted"] == []
    job_ids = room.cluster.job_ids(room.cwd)
    assert {row["job_id"] for row in noisy.status()} == set(job_ids)
    assert "Partition=gpu" in room.cluster.call("scontrol", "show", "job", job_ids[0])
    noisy.run("cancel", "h")
    noisy.wait_for(CANCELLED=2)
    noisy.run("submit", noisy.spec(train=5, evaluate=40))
    noisy.wait_for(FINISHED=1, CANCELLED=1)


def test_a_path_with_spaces_and_shell_words_is_only_a_path(room):
    """Nothing of it is executed, on its way through sbatch, srun and submitit."""
    root = room.cwd / "a b;$(touch x) & ünï #c"
    room.run("submit", "--runs", str(root), room.spec(train=5, evaluate=40))
    (path,) = root.glob("h-*")

    def is_finished() -> bool:
        rows = json.loads(room.run("status", "--json", "--runs", str(root)))["runs"]
        return rows[0]["state"] == "FINISHED"

    room.wait_until(is_finished, "it has finished")
    assert not list(room.cwd.rglob("x"))
    assert (path / "run.zarr").is_dir()


@pytest.mark.parametrize("word", ["$(touch x)", "a'; touch x; '", 'a"; touch x; "', "a\ntouch x"])
def test_what_could_be_executed_on_the_way_is_refused_with_a_sentence(room, word):
    """As a name, and, where a shell or sbatch would take it for more than a path, as a path."""
    spec = room.spec(train=5, evaluate=40)
    if "$" not in word:
        done = room.start("submit", "--runs", word, spec)
        assert done.returncode == 5
        assert "choose another --runs" in done.stderr
    text = (room.cwd / spec).read_text().replace('name = "h"', f"name = {json.dumps(word)}")
    (room.cwd / spec).write_text(text)
    done = room.start("submit", spec)
    assert done.returncode == 2
    assert "h.toml:2:8: name: expected" in done.stderr
    assert {path.name for path in room.cwd.iterdir()} == {spec}


@pytest.mark.parametrize("gpus", [pytest.param(1, marks=pytest.mark.full_matrix), 2])
def test_a_job_sees_the_gpus_that_slurm_gave_it(room, gpus):
    """They are asked for per node, and reach the worker by CUDA_VISIBLE_DEVICES alone."""
    spec = room.spec(evaluate=100_000)
    text = (room.cwd / spec).read_text().replace("gpus = 0", f"gpus = {gpus}")
    (room.cwd / spec).write_text(text)
    room.run("submit", spec)
    room.wait_for(RUNNING=1)
    run = room.only_run()
    room.wait_until(run.read_heartbeat, "the worker has spoken")
    beat = run.read_heartbeat()
    assert beat is not None
    environ = Path(f"/proc/{beat.pid}/environ").read_bytes().split(b"\0")
    (visible,) = [item for item in environ if item.startswith(b"CUDA_VISIBLE_DEVICES=")]
    assert visible.count(b",") == gpus - 1
    room.run("cancel", "h")
