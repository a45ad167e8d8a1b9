"""Runs that wait for others on a real SLURM, which is told so by --dependency=afterok."""

import os
import signal
from contextlib import suppress

import pytest

from tests.cli.test_relax import REAL, path_below
from tests.cluster.cluster import SPEC, Room, is_computing, n_starts
from vmcjob.rundir import RunDir
from vmcjob.store import RunStore

pytestmark = pytest.mark.timeout(3600)

LONG = 600  # steps, enough to stop the worker before the last of them


def submit_from(room: Room, origin: RunDir, name: str, evaluate: int) -> RunDir:
    """Submit a run that starts from another."""
    text = SPEC.format(seeds=[0], train=5, evaluate=evaluate, extra="")
    text = text.replace('"h"', f'"{name}"')
    text = text.replace("[train]\n", f'[train]\nstart_from = "{origin.path.name}"\n')
    (room.cwd / f"{name}.toml").write_text(text)
    room.run("submit", f"{name}.toml")
    (run,) = (run for run in room.list() if run.path.name.startswith(f"{name}-"))
    return run


def row(room: Room, run: RunDir) -> tuple[str, str]:
    """State and message of a run."""
    (found,) = room.status(run.path.name)
    return found["state"], found["message"]


def test_a_chain_goes_on_whatever_happens_to_its_middle_and_to_slurm(room):
    """Without its controller for a while; the middle one requeued, then cancelled, then resumed."""
    room.run("submit", "--extra", "hold", room.spec(seeds=2, evaluate=40))
    first = room.list()[1]  # an array's element
    second = submit_from(room, first, "i", evaluate=LONG)
    third = submit_from(room, second, "j", evaluate=40)
    names = [run.path.name for run in (first, second, third)]
    assert row(room, second) == ("QUEUED", f"waits for {names[0]}")
    os.kill(room.cluster.pid("slurmctld"), signal.SIGTERM)  # it writes down what it knows
    room.cluster.start("slurmctld")
    for job_id in room.cluster.job_ids(first.path.parent):
        room.cluster.call("scontrol", "release", job_id)
    worker = room.hold(second)[second]
    assert row(room, first)[0] == "FINISHED"
    submission = second.read_submission()
    assert submission is not None
    assert submission.job_id is not None
    room.cluster.call("scontrol", "requeue", submission.job_id)
    let_go(worker)
    room.wait_until(lambda: n_starts(second) == 2, "the second is back")
    worker = room.hold(second)[second]
    assert row(room, second)[0] == "RUNNING"
    assert row(room, third) == ("QUEUED", f"waits for {names[1]}")
    room.cluster.call("scancel", submission.job_id)
    let_go(worker)
    room.wait_until(lambda: row(room, third)[0] == "BLOCKED", "the third is blocked")
    assert row(room, third)[1] == (
        f"waits for {names[1]}, which was cancelled; vmcjob resume {names[1]} {names[2]} goes on"
    )
    room.run("resume", names[1], names[2])
    assert len(room.cluster.job_ids(room.cwd)) == 2  # the one that waited in vain is gone
    room.wait_for(FINISHED=4)
    start = RunStore.open(third.store_path).attrs["provenance"]["start_from"]
    assert (start["run_id"], start["step"]) == (names[1], LONG)


def let_go(worker: int) -> None:
    """Let a stopped worker go on; SLURM may have ended the worker before."""
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


def test_what_waits_for_a_run_goes_on_behind_its_larger_job(room):
    """A kill for memory ends the job that SLURM was told to wait for."""
    retries = "[retries]\nout_of_memory = 1\nmemory_factor = 1.5\n"
    room.run("submit", "--mem=1GB", room.spec(extra=retries))
    first = room.only_run()
    second = submit_from(room, first, "i", evaluate=40)
    os.kill(room.hold(first)[first], signal.SIGKILL)
    submission = first.read_submission()
    assert submission is not None
    room.wait_for(FINISHED=2)
    again = first.read_submission()
    assert again is not None
    assert again.job_id != submission.job_id
    assert RunStore.open(second.store_path).attrs["provenance"]["start_from"]["step"] == 40


@pytest.mark.full_matrix  # other ends of a middle: tests/scheduler/test_chains.py, without SLURM
@pytest.mark.parametrize("ending", ["is dead", "has failed"])
def test_a_middle_that_ends_badly_blocks_what_waits_for_it(room, ending):
    """Killed while it computes, or without a spec when it begins: resumed, all of them finish."""
    room.run("submit", "--extra", "hold", room.spec())
    first = room.only_run()
    second = submit_from(room, first, "i", evaluate=2_000)
    third = submit_from(room, second, "j", evaluate=40)
    names = [run.path.name for run in (first, second, third)]
    spec = second.spec_path.read_text()
    if ending == "has failed":
        second.spec_path.write_text("nonsense")
    for job_id in room.cluster.job_ids(first.path.parent):
        room.cluster.call("scontrol", "release", job_id)
    if ending == "is dead":
        room.wait_until(lambda: is_computing(second), "the second computes")
        submission = second.read_submission()
        assert submission is not None
        assert submission.worker_pid is not None
        os.kill(submission.worker_pid, signal.SIGKILL)
    room.wait_until(lambda: row(room, third)[0] == "BLOCKED", "the third is blocked")
    assert row(room, third)[1] == (
        f"waits for {names[1]}, which {ending}; vmcjob resume {names[1]} {names[2]} goes on"
    )
    second.spec_path.write_text(spec)
    room.run("resume", names[1], names[2])
    room.wait_for(FINISHED=3)
    start = RunStore.open(third.store_path).attrs["provenance"]["start_from"]
    assert (start["run_id"], start["step"]) == (names[1], 2_000)


@pytest.mark.full_matrix  # the next job from within a job: tests/cli/test_relax.py, without SLURM
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_relaxation_goes_on_from_job_to_job(real_room: Room, is_followed: bool) -> None:
    """A path that needs a login node stops at its first job.

    A `--follow` beside the jobs would submit each run a second time.
    """
    (real_room.cwd / "real.toml").write_text(REAL + "[resources]\ngpus = 0\n")
    if is_followed:
        assert real_room.start("submit", "-f", "--time=00:30:00", "real.toml").returncode == 3
    else:
        real_room.run("submit", "--time=00:30:00", "real.toml")
    real_room.wait_for(FINISHED=2)
    real_room.wait_until(lambda: not real_room.cluster.job_ids(real_room.cwd), "no job is left")
    path = path_below(real_room.runs)
    assert [one.found is not None for one in path.geometries] == [True, True]
    submissions = [run.read_submission() for run in real_room.list()]
    assert len({found.job_id for found in submissions if found is not None}) == 2
    assert [n_starts(run) for run in real_room.list()] == [1, 1]
    done = real_room.start("submit", "real.toml")
    assert (done.returncode, "not relaxed: the largest force" in done.stdout) == (3, True)
