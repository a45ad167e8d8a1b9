"""What users and operators do to jobs by SLURM's own programs: no run is stranded or doubled."""

import json

import pytest

from tests.cluster.cluster import Room, is_computing, n_starts
from vmcjob.rundir import RunDir
from vmcjob.scheduler.slurm.queue import NO_TRACE

pytestmark = pytest.mark.timeout(3600)


def status(room: Room) -> tuple[str, str]:
    """State and message of the only run."""
    (row,) = room.status()
    return row["state"], row["message"]


def reason_to_skip(room: Room) -> str:
    """Why submitting again leaves the only run alone."""
    done = json.loads(room.run("submit", "--json", "h.toml"))
    assert done["submitted"] == []
    return done["skipped"][0]["reason"]


def test_a_job_that_is_held_moved_suspended_and_requeued_stays_the_only_one_of_its_run(room):
    room.run("submit", "--extra", "hold", room.spec(evaluate=2_000))
    (job_id,) = room.cluster.job_ids(room.cwd)

    def tell(command: str, *changes: str) -> None:
        job = [f"JobId={job_id}"] if changes else [job_id]
        room.cluster.call("scontrol", command, *job, *changes)

    tell("update", "Partition=scavenge", "TimeLimit=00:10:00")
    assert reason_to_skip(room).startswith("queued")
    tell("release")
    run = room.only_run()
    room.wait_until(lambda: is_computing(run), "it computes")
    tell("suspend")
    assert status(room) == ("RUNNING", "suspended by SLURM; goes on when it is resumed")
    assert reason_to_skip(room).startswith("running")
    tell("resume")
    tell("requeuehold")
    seen: list[str] = []

    def is_queued() -> bool:
        seen.append(status(room)[0])
        return seen[-1] == "QUEUED"

    room.wait_until(is_queued, "it waits again")
    assert set(seen) <= {"STOPPING", "QUEUED"}
    assert status(room)[1] == "requeued and held; scontrol release lets it go"
    assert reason_to_skip(room).startswith("queued")
    tell("release")
    room.wait_for(FINISHED=1)
    assert (room.status()[0]["job_id"], n_starts(run)) == (job_id, 2)


def test_a_node_that_is_drained_and_set_down_leaves_no_run_behind(room):
    """Its job was not cancelled by anybody; SLURM says no more than that its node has failed."""
    here = ("--mem=500M", "--extra", "nodelist=n1")
    room.run("submit", *here, room.spec(evaluate=100_000))
    run, (job_id,) = room.only_run(), room.cluster.job_ids(room.cwd)
    room.cluster.call("scontrol", "update", f"JobId={job_id}", "Requeue=0")
    room.wait_until(lambda: is_computing(run), "it computes")
    node = ("scontrol", "update", "NodeName=n1", "Reason=test")
    try:
        room.cluster.call(*node, "State=DRAIN")
        room.run("submit", *here, room.spec(seeds=2, evaluate=100_000))  # its test says no
        room.wait_until(lambda: "its nodes are down" in messages(room), "one waits for the node")
        assert room.states() == {"RUNNING": 1, "QUEUED": 1}
        room.cluster.call(*node, "State=DOWN")
        room.wait_until(lambda: not is_at_work(run), "nobody of its job is left")
        room.wait_for(PREEMPTED=1, QUEUED=1)
        lost = "its job does not come back, vmcjob resume goes on"
        room.wait_until(lambda: lost in messages(room), "its supervisor has tried everything")
    finally:
        room.cluster.call(*node, "State=RESUME")
        room.cluster.wait_until_ready()  # a node that does not answer yet is offered to nobody
    room.run("submit", *here, "h.toml")
    room.wait_until(lambda: n_starts(run) == 2, "it goes on")
    room.run("cancel", "h")


def messages(room: Room) -> str:
    """What status says of all runs."""
    return "\n".join(row["message"] for row in room.status())


def is_at_work(run: RunDir) -> bool:
    """Whether the worker that the run's job has started is alive."""
    submission = run.read_submission()
    worker = submission and submission.worker
    return worker is not None and worker.is_alive() is True


def test_a_failed_job_that_is_put_back_is_not_joined_by_another(room):
    room.run("submit", "--extra", "hold", room.spec(evaluate=40))
    run, (job_id,) = room.only_run(), room.cluster.job_ids(room.cwd)
    run.store_path.write_text("not a store")
    room.cluster.call("scontrol", "release", job_id)
    room.wait_for(FAILED=1)
    run.store_path.unlink()
    room.wait_until(lambda: not room.cluster.job_ids(room.cwd), "the job has left the queue")
    room.cluster.call("scontrol", "requeuehold", job_id)
    assert status(room)[0] == "QUEUED"
    assert reason_to_skip(room).startswith("queued")
    room.cluster.call("scontrol", "release", job_id)
    room.wait_for(FINISHED=1)


def test_a_job_that_was_taken_out_of_the_queue_is_said_to_be_as_long_as_slurm_knows(room):
    """Without accounting, nobody else knows whether it was cancelled or could not start."""
    room.run("submit", "--extra", "hold", room.spec(evaluate=40))
    (job_id,) = room.cluster.job_ids(room.cwd)
    room.cluster.call("scancel", job_id)
    assert status(room)[0] == "CANCELLED"
    command = ("squeue", "--noheader", "--states=all", "--format=%i")
    room.wait_until(lambda: job_id not in room.cluster.call(*command).split(), "it is forgotten")
    assert status(room) == ("DEAD", NO_TRACE)
    room.run("submit", "h.toml")
    room.wait_for(FINISHED=1)
