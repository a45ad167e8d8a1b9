"""A cluster with an accounting: what squeue has forgotten can still be asked for."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, Room, is_computing, n_starts
from tests.cluster.test_life import assert_lives_a_whole_life
from vmcjob.rundir import RunDir

pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("accounted")]


@pytest.fixture(scope="module")
def accounted(cluster) -> Iterator[None]:
    """The same testbed with slurmdbd, which answers sacct."""
    cluster.up("--accounting")
    yield
    cluster.up()


def submit(room: Room, seeds: int, *options: str, evaluate: int = 600) -> list[RunDir]:
    """Runs of one array, by their index in it; those that were submitted before are left out."""
    spec = room.spec(seeds=seeds, train=5, evaluate=evaluate)
    done = json.loads(room.run("submit", "--json", *options, spec))
    return [RunDir(Path(item["run_dir"])) for item in done["submitted"]]


def job_id(run: RunDir) -> str:
    submission = run.read_submission()
    assert submission is not None
    assert submission.job_id is not None
    return submission.job_id


def worker_and_supervisor(run: RunDir) -> tuple[int, int]:
    """Their pids."""
    submission = run.read_submission()
    assert submission is not None
    assert submission.worker_pid is not None
    assert submission.pid is not None
    return submission.worker_pid, submission.pid


def messages(room: Room) -> dict[str, str]:
    return {row["run_id"]: row["message"] for row in room.status()}


@pytest.mark.full_matrix  # in an image, and with accounting, are tested one by one
def test_from_submit_to_an_energy_in_an_image_with_accounting(contained):
    assert_lives_a_whole_life(contained)


def test_what_squeue_has_forgotten_the_accounting_remembers(room):
    """One run finishes, the job of one is killed whole, one is cancelled before it began."""
    finished, killed = runs = submit(room, 2)
    room.hold(*runs)  # or they would be done in seconds; each has a whole node
    (cancelled,) = submit(room, 3)
    accounting = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State")
    pending = f"{job_id(cancelled)}|PENDING"
    room.wait_until(lambda: pending in room.cluster.call(*accounting), "the accounting has it")
    room.cluster.call("scancel", job_id(cancelled))
    os.kill(worker_and_supervisor(finished)[0], signal.SIGCONT)
    for pid in worker_and_supervisor(killed):  # nobody is left to say what happened
        os.kill(pid, signal.SIGKILL)
    wanted = {"FINISHED": 1, "DEAD": 1, "CANCELLED": 1}
    room.wait_for(**wanted)
    before = messages(room)
    command = ("squeue", "--noheader", "--states=all", "--format=%Z")
    room.wait_until(
        lambda: str(room.cwd) not in room.cluster.call(*command), "SLURM has forgotten the jobs"
    )
    assert room.states() == wanted
    assert messages(room) == before
    assert before[finished.path.name].startswith(
        ("suspect: ", "not yet: ")
    )  # a training of five steps
    assert before[killed.path.name].startswith("the job ended without a word of the worker")
    assert before[cancelled.path.name] == ""


def test_an_array_seen_from_a_login_host_is_never_doubled(room):
    """In a hidden partition, throttled, renamed, with an epilog, and with a sibling forgotten.

    Each of these made living jobs look over. The last element has the array's own id, and runs
    while the ends of others are still told.
    """
    room = replace(room, is_elsewhere=True)
    room.cluster.linger(8)
    try:
        options = ("-p", "unlisted", "--mem=500M", "--max-parallel=2", "-t", "0:10:00")
        runs = submit(room, 4, *options, evaluate=100_000)
        ids = [job_id(run) for run in runs]
        array = ids[0].partition("_")[0]
        room.cluster.call("scontrol", "update", f"JobId={array}", "JobName=renamed")
        assert room.states()["QUEUED"] >= 2
        room.wait_until(lambda: all(map(is_computing, runs[:2])), "two compute")
        room.run("cancel", *(run.path.name for run in runs[:2]))
        room.wait_until(lambda: all(map(is_computing, runs[2:])), "the others compute")
        command = ("squeue", "--all", "--noheader", "--array", "--states=all", "--format=%i")
        known = room.cluster.call
        room.wait_until(
            lambda: not set(ids[:2]) & set(known(*command).split()), "SLURM has forgotten two"
        )
        assert room.states() == {"CANCELLED": 2, "RUNNING": 2}
        records = [run.submission_path.read_text() for run in runs[2:]]
        again = json.loads(room.run("submit", "--json", "-p", "unlisted", "--extra=hold", "h.toml"))
        assert {item["run_id"] for item in again["submitted"]} == {r.path.name for r in runs[:2]}
        assert [run.submission_path.read_text() for run in runs[2:]] == records
        room.run("cancel", "h")
        room.wait_for(CANCELLED=4)
        assert set(map(n_starts, runs)) == {1}
    finally:
        room.cluster.linger(0)


def test_of_jobs_on_a_lost_node_one_comes_back_and_one_that_must_not_is_dead(room):
    """SLURM requeues the first; of the second the accounting knows what happened."""
    back, lost = runs = submit(room, 2, "--mem=500M", "--extra", "nodelist=n1")
    room.hold(*runs)  # or they would be done in seconds
    room.cluster.call("scontrol", "update", f"JobId={job_id(lost)}", "Requeue=0")
    lose_node(room.cluster, "n1")
    try:
        room.wait_for(QUEUED=1, DEAD=1)
        assert messages(room)[lost.path.name] == "the node failed"
    finally:
        room.cluster.start("slurmd", "-N", "n1")
    room.wait_for(FINISHED=1, DEAD=1)
    assert n_starts(back) == 2
    room.run("resume", "h")
    room.wait_for(FINISHED=2)


def test_of_more_jobs_than_an_account_may_submit_as_many_go_in_as_there_is_room_for(room):
    """Its own words about its own limits, on which the fast tests of this rely."""
    root = ("where", "user=root", "account=root")
    limit = ("sacctmgr", "-i", "modify", *("user", "set"))
    room.cluster.call(*limit, "MaxSubmitJobs=2", *root)
    try:
        spec = room.spec(seeds=3, evaluate=100_000)
        done = room.start("submit", "-n", "--check", spec)
        assert done.returncode == 5
        assert (
            "SLURM would take 2 jobs in partition gpu; the first could start at 20" in done.stderr
        )
        done = room.start("submit", "--json", "--extra", "hold", spec)
        assert done.returncode == 5
        assert "SLURM takes 2 of 3 jobs now (AssocMaxSubmitJobLimit)" in done.stderr
        assert room.states() == {"QUEUED": 2, "NEW": 1}
        done = room.start("submit", spec)
        assert "SLURM takes no more jobs now (AssocMaxSubmitJobLimit)" in done.stderr
    finally:
        room.cluster.call(*limit, "MaxSubmitJobs=-1", *root)


def lose_node(cluster: Cluster, node: str) -> None:
    """As a power cut: its daemon and all that belongs to its jobs end at once."""
    text = cluster.call("squeue", "--noheader", f"--nodelist={node}", "--format=%A")
    jobs = [job.encode() for job in text.split()]
    keepers = [b"slurmstepd: [%s." % job for job in jobs]
    members = [b"SLURM_JOB_ID=%s" % job for job in jobs]
    os.kill(cluster.pid(f"slurmd-{node}"), signal.SIGKILL)
    # First those who would tell the controller how the others ended.
    for name, is_one in (
        ("cmdline", lambda text: any(text.startswith(keeper) for keeper in keepers)),
        ("environ", lambda text: not set(members).isdisjoint(text.split(b"\0"))),
    ):
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                if is_one((process / name).read_bytes()):
                    os.kill(int(process.name), signal.SIGKILL)
    cluster.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
