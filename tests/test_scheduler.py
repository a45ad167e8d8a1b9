"""The local scheduler, with real launchers and real, if simple, workers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tests.runs import end_everything, make_run, wait_until
from tests.submissions import draft_here, submit_here
from vmcjob import scheduler
from vmcjob.errors import RunDirError, SchedulerError
from vmcjob.plan import Plan, make_plan
from vmcjob.rundir import Outcome, OutcomeRecord, Process, RunDir, Submission, list_runs
from vmcjob.runs.status import State, examine
from vmcjob.scheduler import Receipt
from vmcjob.scheduler.local import Order
from vmcjob.spec import parse_spec

# Says when it starts and ends, waits in between until the file "gate" is there, and stops at
# SIGTERM like the real one.
WORKER = """
import signal, sys, time
from pathlib import Path
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir

run = RunDir(Path(sys.argv[1]))
root = run.path.parent

def note(event):
    with open(root / "journal", "a") as journal:
        journal.write(f"{event} {run.path.name}\\n")

def stop(number, frame):
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED))
    sys.exit(75)

signal.signal(signal.SIGTERM, stop)
with run.lock():
    note("start")
    print("hello from the worker", flush=True)
    while not (root / "gate").exists():
        time.sleep(0.02)
    note("end")
    run.store_path.mkdir(exist_ok=True)
    (run.store_path / "zarr.json").write_text("{}")
    run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
"""
COMMAND = (sys.executable, "-c", WORKER)


def plan_runs(n_runs: int = 1, extra: str = "") -> list[Plan]:
    """A spec with as many seeds as runs are wanted."""
    text = f"""
name = "h"
seeds = {list(range(n_runs))}
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
{extra}
"""
    return [make_plan(parse_spec(text, "h.toml"))]


class Office:
    """Submits to a runs root and sees to it that nothing outlives the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.launchers: list[subprocess.Popen[bytes]] = []

    def submit(
        self, plans: list[Plan], *, max_parallel: int = 1, command: tuple[str, ...] = COMMAND
    ) -> Receipt:
        receipt = submit_here(self.root, plans, max_parallel=max_parallel, worker_command=command)
        self.launchers.extend(receipt.launchers)
        return receipt

    def open_gate(self) -> None:
        self.root.mkdir(exist_ok=True)
        (self.root / "gate").touch()

    def journal(self) -> list[tuple[str, str]]:
        path = self.root / "journal"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(event, run_id) for event, _, run_id in (line.partition(" ") for line in lines)]

    def states(self) -> Counter[State]:
        return Counter(examine(run).state for run in list_runs(self.root))

    def wait_for(self, **wanted: int) -> None:
        """Wait until so many runs are in these states, and all of them have been counted."""
        states = Counter({State(name): number for name, number in wanted.items()})
        wait_until(lambda: self.states() == states, f"{wanted}, is {self.states()}")

    def close(self) -> None:
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait()
        end_everything(self.root)


@pytest.fixture
def office(tmp_path) -> Iterator[Office]:
    office = Office(tmp_path / "runs")
    yield office
    office.close()


def running(root: Path) -> RunDir:
    (found,) = [run for run in list_runs(root) if examine(run).state is State.RUNNING]
    return found


def test_runs_are_worked_on_one_after_the_other_and_their_words_are_kept(office):
    receipt = office.submit(plan_runs(3))
    assert len(receipt.submitted) == 3
    office.wait_for(RUNNING=1, QUEUED=2)
    office.open_gate()
    office.wait_for(FINISHED=3)
    # The journal would show two starts in a row if two had run at the same time.
    assert [event for event, _ in office.journal()] == ["start", "end"] * 3
    order = [run_id for event, run_id in office.journal() if event == "start"]
    assert order == [item.run_id for item in receipt.submitted]
    for run in list_runs(office.root):
        assert run.log_path.read_text() == "hello from the worker\n"
    receipt.wait()
    assert [launcher.poll() for launcher in receipt.launchers] == [0]


def test_as_many_run_at_a_time_as_there_are_slots(office):
    office.submit(plan_runs(5), max_parallel=2)
    office.wait_for(RUNNING=2, QUEUED=3)
    wait_until(lambda: len(office.journal()) == 2, "both have started")
    office.open_gate()
    office.wait_for(FINISHED=5)


def test_submissions_share_the_slots_of_a_runs_root(office):
    """Two commands, one machine: the second must not double the load."""
    office.submit(plan_runs(1))
    office.wait_for(RUNNING=1)
    office.submit(plan_runs(3))
    office.wait_for(RUNNING=1, QUEUED=2)
    office.open_gate()
    office.wait_for(FINISHED=3)
    assert [event for event, _ in office.journal()] == ["start", "end"] * 3


def test_runs_roots_share_the_slots_of_a_machine(office, tmp_path):
    """There is one GPU, whatever the directories: the second run waits for the first one's end."""
    other = Office(tmp_path / "other")
    try:
        office.submit(plan_runs(1))
        office.wait_for(RUNNING=1)
        other.open_gate()
        other.submit(plan_runs(1))
        time.sleep(1.0)  # five looks of its launcher
        assert (office.states(), other.states()) == ({State.RUNNING: 1}, {State.QUEUED: 1})
        office.open_gate()
        office.wait_for(FINISHED=1)
        other.wait_for(FINISHED=1)
    finally:
        other.close()


def test_without_a_home_to_write_to_a_runs_root_has_slots_of_its_own(office, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    office.open_gate()
    office.submit(plan_runs(1))
    office.wait_for(FINISHED=1)
    assert (office.root / ".local" / "slot-0").exists()


def test_submissions_are_served_in_the_order_in_which_they_came(office):
    """Launchers poll, so without an order chance would decide, and somebody could wait for ever.

    The first submission's second run waited before anything of the others: it comes second.
    """
    specs = [plan_runs(2), *(plan_runs(2, f"charge = {-charge}") for charge in range(1, 4))]
    receipts = [office.submit(plans) for plans in specs]
    office.wait_for(RUNNING=1, QUEUED=7)
    wait_until(lambda: office.journal(), "the first has begun")
    office.open_gate()
    office.wait_for(FINISHED=8)
    started = [run_id for event, run_id in office.journal() if event == "start"]
    assert started == [item.run_id for receipt in receipts for item in receipt.submitted]


def test_a_root_that_cannot_be_listed_does_not_end_the_launcher(tmp_path, monkeypatch):
    """A network file system may fail for a moment, and its runs would never be started."""

    def fail(root: Path) -> list[RunDir]:
        raise RunDirError(f"{root}: cannot be listed: Stale file handle")

    run, us = make_run(tmp_path), Process.of_pid(os.getpid())
    run.write_submission(
        Submission(scheduler="local", job_id="local-1", pid=us.pid, process_start=us.start)
    )
    monkeypatch.setattr("vmcjob.scheduler.local.launcher.list_runs", fail)
    order = Order((run.path,), 1, (sys.executable, "-c", "print('started')"))
    scheduler.serve(tmp_path, BytesIO(order.to_json()))
    assert run.log_path.read_text().startswith("started\n")


def test_submitting_at_the_same_moment_starts_every_run_once(office):
    """Without a lock around looking and recording, both would see a new run and start it."""
    plans = plan_runs(4)
    office.open_gate()
    barrier = threading.Barrier(6)
    receipts: list[Receipt] = []

    def submit() -> None:
        barrier.wait()
        receipts.append(office.submit(plans, max_parallel=4))

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receipts) == 6
    submitted = [item.run_id for receipt in receipts for item in receipt.submitted]
    assert sorted(submitted) == sorted(task.run_id for task in plans[0].tasks)
    office.wait_for(FINISHED=4)
    starts = Counter(run_id for event, run_id in office.journal() if event == "start")
    assert set(starts.values()) == {1}


DIVERGED = "diverged; change the spec, for example to a smaller optimizer.learning_rate"


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.FINISHED, "finished"),
        (Outcome.DIVERGED, DIVERGED),
        (Outcome.PREEMPTED, None),
        (Outcome.FAILED, None),
    ],
)
def test_what_ended_well_or_hopelessly_is_left_alone_and_the_rest_goes_on(office, outcome, reason):
    office.open_gate()
    office.submit(plan_runs(1))
    office.wait_for(FINISHED=1)
    (run,) = list_runs(office.root)
    end(run, outcome)
    receipt = office.submit(plan_runs(1))
    assert [item.reason for item in receipt.skipped] == ([reason] if reason else [])
    assert [item.run for item in receipt.submitted] == ([] if reason else [run])
    office.wait_for(**{outcome if reason else Outcome.FINISHED: 1})


def end(run: RunDir, outcome: Outcome) -> None:
    run.write_outcome(OutcomeRecord(outcome=outcome))


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_finished_run_that_lost_its_results_is_neither_good_nor_begun_anew(office, content):
    """Called just "finished", it would be missed when the energies are wanted."""
    office.open_gate()
    office.submit(plan_runs(1))
    office.wait_for(FINISHED=1)
    (run,) = list_runs(office.root)
    root = run.store_path / "zarr.json"
    root.unlink() if content is None else root.write_text(content)
    lost = "its results are missing or damaged; vmcjob rerun begins it anew"
    (skipped,) = office.submit(plan_runs(1)).skipped
    assert (skipped.reason, examine(run).message) == (f"finished, but {lost}", lost)


def test_queued_and_running_runs_are_left_alone(office):
    office.submit(plan_runs(2))
    office.wait_for(RUNNING=1, QUEUED=1)
    receipt = office.submit(plan_runs(2))
    assert receipt.submitted == ()
    assert receipt.launchers == ()
    assert sorted(item.reason for item in receipt.skipped) == ["queued", "running"]


def test_a_killed_worker_is_dead_reaped_and_told_of_while_the_next_one_starts(office):
    """The launcher is its parent: unreaped, it would stay a zombie and hold nothing up but us."""
    office.submit(plan_runs(2))
    office.wait_for(RUNNING=1, QUEUED=1)
    run = running(office.root)
    submission = run.read_submission()
    assert submission is not None
    assert submission.worker is not None
    os.kill(submission.worker.pid, signal.SIGKILL)
    office.wait_for(DEAD=1, RUNNING=1)
    wait_until(lambda: "ended by SIGKILL without an outcome" in run.log_path.read_text(), "told")
    assert examine(run).message == "the worker was killed by SIGKILL; vmcjob resume goes on"
    assert not Path(f"/proc/{submission.worker.pid}").exists()
    receipt = office.submit(plan_runs(2))
    assert [item.run for item in receipt.submitted] == [run]
    office.open_gate()
    office.wait_for(FINISHED=2)


def test_a_killed_launcher_leaves_its_worker_running_in_its_slot(office):
    """The worker holds the slot's lock itself, so a new submission still waits for it."""
    first = office.submit(plan_runs(2))
    office.wait_for(RUNNING=1, QUEUED=1)
    (launcher,) = first.launchers
    launcher.kill()
    launcher.wait()
    office.wait_for(RUNNING=1, DEAD=1)
    second = office.submit(plan_runs(2))
    assert len(second.submitted) == 1
    office.wait_for(RUNNING=1, QUEUED=1)
    office.open_gate()
    office.wait_for(FINISHED=2)
    assert [event for event, _ in office.journal()] == ["start", "end"] * 2


def test_a_cancelled_run_leaves_the_queue_and_can_be_submitted_again(office):
    office.submit(plan_runs(2))
    office.wait_for(RUNNING=1, QUEUED=1)
    (queued,) = [run for run in list_runs(office.root) if examine(run).state is State.QUEUED]
    (result,) = scheduler.cancel([queued])
    assert (result.was_active, result.result) == (True, "taken out of the queue")
    office.wait_for(RUNNING=1, CANCELLED=1)
    office.open_gate()
    office.wait_for(FINISHED=1, CANCELLED=1)
    assert queued.path.name not in [run_id for _, run_id in office.journal()]
    office.submit(plan_runs(2))
    office.wait_for(FINISHED=2)


def test_a_cancelled_worker_is_asked_to_stop_and_the_next_one_starts(office):
    office.submit(plan_runs(2))
    office.wait_for(RUNNING=1, QUEUED=1)
    run = running(office.root)
    wait_until(lambda: office.journal() == [("start", run.path.name)], "it listens to signals")
    (result,) = scheduler.cancel([run])
    assert (result.was_active, result.result) == (True, "asked to stop at its next checkpoint")
    office.wait_for(CANCELLED=1, RUNNING=1)
    (again,) = scheduler.cancel([run])
    assert (again.was_active, again.result) == (False, "not active (cancelled)")
    office.open_gate()
    office.submit(plan_runs(2))
    office.wait_for(FINISHED=2)


SLOW_TO_STOP = WORKER.replace(
    "    run.write_outcome(OutcomeRecord(outcome=Outcome.PRE",
    """
    while not (root / "gate").exists():
        time.sleep(0.02)
    run.write_outcome(OutcomeRecord(outcome=Outcome.PRE""",
)


def test_a_run_that_is_stopping_says_so_to_all(office):
    """The block at hand may take a minute: it is not "running" as if nobody had asked it to end."""
    office.submit(plan_runs(1), command=(sys.executable, "-c", SLOW_TO_STOP))
    wait_until(lambda: office.journal(), "it listens to signals")
    run = running(office.root)
    scheduler.cancel([run])
    office.wait_for(STOPPING=1)
    (skipped,) = office.submit(plan_runs(1)).skipped
    assert skipped.reason == "still stopping; submit it again when it has stopped"
    assert scheduler.cancel([run])[0].result == "asked to stop at its next checkpoint"
    office.open_gate()
    office.wait_for(CANCELLED=1)


def test_taking_over_a_run_makes_its_old_launcher_let_go(office):
    """Cancelled and submitted again, a run is named by two orders, but by one submission."""
    office.submit(plan_runs(2))
    office.wait_for(RUNNING=1, QUEUED=1)
    (queued,) = [run for run in list_runs(office.root) if examine(run).state is State.QUEUED]
    scheduler.cancel([queued])
    office.submit(plan_runs(2))
    office.wait_for(RUNNING=1, QUEUED=1)
    office.open_gate()
    office.wait_for(FINISHED=2)
    for launcher in office.launchers:
        wait_until(lambda launcher=launcher: launcher.poll() == 0, "the launcher ends")
    assert Counter(office.journal())["start", queued.path.name] == 1


def test_a_launcher_without_an_order_does_nothing(office):
    """Whoever submits may be killed between starting the launcher and recording it."""
    office.root.mkdir()
    command = [sys.executable, "-m", "vmcjob", "local-queue", str(office.root)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert os.listdir(office.root) == []


def test_a_worker_that_cannot_be_started_fails_with_the_reason(office):
    office.submit(plan_runs(2), command=("/nonexistent/python",))
    office.wait_for(FAILED=2)
    assert "/nonexistent/python" in examine(list_runs(office.root)[0]).message


def test_a_worker_that_ends_by_itself_without_a_word_has_failed(office):
    """A broken installation: nothing was killed, and trying again will not help by itself."""
    office.submit(plan_runs(1), command=(sys.executable, "-c", "raise SystemExit(3)"))
    office.wait_for(FAILED=1)
    (run,) = list_runs(office.root)
    assert examine(run).message == "the worker ended by exit code 3; its log says more"
    assert "ended by exit code 3 without an outcome" in run.log_path.read_text()


def test_a_second_worker_that_found_the_run_locked_does_not_end_the_first_ones_run(office):
    """It ends with an error, but what it would say is not about this run."""
    office.submit(plan_runs(1))
    office.wait_for(RUNNING=1)
    run = running(office.root)
    wait_until(lambda: office.journal(), "the first worker has the lock")
    run.clear_submission()  # as if the first worker had been started by hand, before any heartbeat
    assert len(office.submit(plan_runs(1), max_parallel=2).submitted) == 1
    wait_until(lambda: "already being run by pid" in run.log_path.read_text(), "the second ended")
    wait_until(lambda: office.launchers[-1].poll() == 0, "its launcher ends")
    assert run.read_outcome() is None
    office.open_gate()
    office.wait_for(FINISHED=1)


def test_other_resources_for_the_same_science_reach_an_interrupted_run(office):
    """A longer wall time must continue the run, not begin another."""
    office.open_gate()
    office.submit(plan_runs(1))
    office.wait_for(FINISHED=1)
    (run,) = list_runs(office.root)
    end(run, Outcome.PREEMPTED)
    office.submit(plan_runs(1, '[resources]\ntime = "10:00:00"'))
    office.wait_for(FINISHED=1)
    assert list_runs(office.root) == [run]
    assert 'time = "10:00:00"' in run.read_spec_text()


def test_a_finished_run_keeps_the_spec_it_was_run_with(office):
    office.open_gate()
    office.submit(plan_runs(1))
    office.wait_for(FINISHED=1)
    (run,) = list_runs(office.root)
    before = run.read_spec_text()
    office.submit(plan_runs(1, '[resources]\ntime = "10:00:00"'))
    assert run.read_spec_text() == before


def test_a_preview_writes_nothing(office):
    receipt = draft_here(office.root, plan_runs(3))
    assert len(receipt.submitted) == 3
    assert not office.root.exists()


def test_several_nodes_are_refused_before_anything_is_written(office):
    with pytest.raises(SchedulerError, match=r"asks for 2 nodes, and this machine is one"):
        office.submit(plan_runs(1, "[resources]\nnodes = 2"))
    assert not office.root.exists()


def test_a_spec_named_twice_is_one_run(office):
    office.open_gate()
    receipt = office.submit(plan_runs(1) + plan_runs(1))
    assert len(receipt.submitted) == 1
    office.wait_for(FINISHED=1)


def test_a_runs_root_that_cannot_be_made_is_an_error_with_its_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match=r"file/runs/h-.*: cannot be made"):
        submit_here(tmp_path / "file" / "runs", plan_runs(1), max_parallel=1)


def test_a_run_that_cannot_be_handed_over_does_not_take_the_others_with_it(office):
    """It would have left them with a submission to a launcher that was never told of them."""
    plans = plan_runs(2)
    office.open_gate()
    blocked, free = (task.run_id for task in plans[0].tasks)
    (make_runs(office.root, plans)[blocked].submission_path / "in the way").mkdir(parents=True)
    receipt = office.submit(plans)
    assert [item.run_id for item in receipt.submitted] == [free]
    assert ["cannot be written" in str(item.error) for item in receipt.skipped] == [True]
    office.wait_for(NEW=1, FINISHED=1)


def make_runs(root: Path, plans: list[Plan]) -> dict[str, RunDir]:
    """The run directories of a plan, that nobody has been asked to run."""
    return {
        task.run_id: make_run(
            root, task.run_id, seed=task.seed, science_sha256=task.science_sha256, point=task.point
        )
        for plan in plans
        for task in plan.tasks
    }


def test_a_directory_that_cannot_be_used_does_not_stop_the_other_runs(office):
    """Another science in the way, and a record that is no JSON: each is named, and left alone."""
    plans = plan_runs(3)
    foreign, damaged, whole = (task.run_id for task in plans[0].tasks)
    make_run(office.root, foreign)
    make_run(office.root, damaged).record_path.write_text("{")
    office.open_gate()
    receipt = office.submit(plans)
    assert [item.run_id for item in receipt.submitted] == [whole]
    errors = {item.run_id: str(item.error) for item in receipt.skipped}
    assert "holds another run" in errors[foreign]
    assert "run.json: damaged" in errors[damaged]
    wait_until(lambda: office.journal() == [("start", whole), ("end", whole)], "it has run")


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("wish", ["auto", "local"])
def test_without_sbatch_everything_runs_here(monkeypatch, tmp_path, wish, is_local):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert scheduler.choose(wish, is_local).name == "local"


def test_with_sbatch_everything_goes_to_slurm_unless_told_otherwise(monkeypatch, tmp_path):
    """Never the other way round: a job that silently ran on the login node."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for wish in ("auto", "slurm"):
        assert scheduler.choose(wish, False).name == "slurm"
        assert scheduler.choose(wish, True).name == "local"
    assert scheduler.choose("local", False).name == "local"
