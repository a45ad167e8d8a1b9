"""What goes wrong on a real SLURM, and that it is told, contained and repaired."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Room

pytestmark = pytest.mark.timeout(900)


def test_one_failed_task_of_a_sweep_is_named_and_resumed_alone(room):
    """Eight tasks in one array, two at a time; the others finish as if nothing had happened."""
    spec = room.spec(train=5, evaluate=40, extra='[sweep]\n"sampler.width" = [0.2, 0.3, 0.4, 0.5]')
    text = (room.cwd / spec).read_text().replace("seeds = [0]", "seeds = [0, 1]")
    (room.cwd / spec).write_text(text)
    drawn = json.loads(room.run("submit", "-n", "--json", spec))
    (job,) = drawn["jobs"]
    assert len(job["run_ids"]) == 8
    # A store that cannot be opened stands in the way of the third run.
    submitted = json.loads(room.run("submit", "--json", "--max-parallel=2", spec))["submitted"]
    assert len({item["job_id"].partition("_")[0] for item in submitted}) == 1
    broken = Path(submitted[2]["run_dir"])
    (broken / "run.zarr").write_text("not a store")
    most = 0

    def count_running() -> bool:
        nonlocal most
        states = room.states()
        most = max(most, states["RUNNING"])
        return states == {"FINISHED": 7, "FAILED": 1}

    room.wait_until(count_running, "seven have finished and one has failed")
    assert most <= 2
    (failed,) = [row for row in room.status() if row["state"] == "FAILED"]
    assert failed["run_id"] == broken.name
    assert "run.zarr" in failed["message"]
    table = room.start("aggregate", "--json")
    assert table.returncode == 3
    (excluded,) = json.loads(table.stdout)["excluded"]
    assert excluded["run_id"] == broken.name
    (broken / "run.zarr").unlink()
    again = json.loads(room.run("resume", "--json", "h"))
    assert [item["run_id"] for item in again["submitted"]] == [broken.name]
    room.wait_for(FINISHED=8)


def test_a_controller_that_is_gone_while_submitting_and_watching(room):
    """Exit code 5 and SLURM's own words; no orphan, no lost run, and the next submit repairs."""
    spec = room.spec(train=5, evaluate=40)
    dead = replace(room, extra={"SLURM_CONF": str(nobody_answers(room))})
    done = dead.start("submit", spec)
    assert done.returncode == 5
    assert "Unable to contact slurm controller" in done.stderr
    assert not room.runs.exists()
    room.run("submit", spec)
    done = dead.start("status")
    assert done.returncode == 5
    assert "Unable to contact slurm controller" in done.stderr
    assert "h-" in done.stdout  # what is known is shown all the same
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
    for options in (("-p", "absent"), ("--gres", "gpu:9"), ("-p", "gpu", "-t", "99:00:00")):
        done = room.start("submit", *options, room.spec())
        assert done.returncode == 5
        assert not room.runs.exists()


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


@pytest.mark.parametrize("gpus", [1, 2])
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


def nobody_answers(room: Room) -> Path:
    """SLURM's configuration with a controller that is not there."""
    ours = Path(room.cluster.environment["SLURM_CONF"])
    text = ours.read_text().replace("SlurmctldPort=16817", "SlurmctldPort=16999")
    path = room.cwd / "slurm.conf"
    path.write_text(text)
    shutil.copy(ours.with_name("gres.conf"), path.with_name("gres.conf"))
    return path
