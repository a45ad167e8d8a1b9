"""Several runs that share a job, with real, if simple, workers; SLURM's programs are stand-ins."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs import Programs, make_run, wait_until
from vmcjob.rundir import SHORT_OF_MEMORY, Outcome, OutcomeRecord, RunDir, Submission
from vmcjob.runs.status import JobState, Stage, State, examine
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor import Pack, Share, Supervisor

JOB = SlurmJob("22_0", "25", 0)
# Says what it sees, then does as its run's file "order" says: finish, fail, or stop when asked to,
# after so many seconds.
WORKER = """
import json, os, signal, sys, time
from pathlib import Path
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Activity, RunDir

run = RunDir(Path(sys.argv[1]))
order, delay = (run.path / "order").read_text().split()
is_asked = []
signal.signal(signal.SIGUSR2, lambda number, frame: is_asked.append(number))
run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=int(time.time()), n_steps=10))
names = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION")
seen = {name: os.environ.get(name) for name in names} | {"cpus": len(os.sched_getaffinity(0))}
print(json.dumps(seen), flush=True)
if order == "fail":
    sys.exit(3)
while order == "wait" and not is_asked:
    time.sleep(0.02)
time.sleep(float(delay))
outcome = Outcome.FINISHED if order == "finish" else Outcome.PREEMPTED
run.write_outcome(OutcomeRecord(outcome=outcome))
print("ended", time.time(), flush=True)
sys.exit(0 if order == "finish" else 75)
"""


@pytest.fixture
def slurm(programs) -> Programs:
    """The wall time has no end, and everything is requeued."""
    programs.make("squeue", "25 N/A UNLIMITED\n")
    programs.make("scontrol", "JobId=25 JobState=RUNNING Restarts=0\n")
    return programs


def make_pack(root: Path, *orders: str, count: int | None = None) -> tuple[Pack, list[RunDir]]:
    """A job of as many runs as there are orders."""
    runs = [make_run(root / "runs", f"h{n}-0123456789") for n in range(len(orders))]
    for place, (run, order) in enumerate(zip(runs, orders, strict=True)):
        (run.path / "order").write_text(order)
        run.write_submission(
            Submission(scheduler="slurm", job_id=None, job_name="h-abc", place=place)
        )
    supervisors = tuple(
        Supervisor(
            str(run.path),
            "h-abc",
            (sys.executable, "-c", WORKER, str(run.path)),
            1.0,
            share=Share(place, count or len(runs)),
        )
        for place, run in enumerate(runs)
    )
    return Pack(supervisors), runs


def supervise(pack: Pack, interfere: Callable[[], None] = lambda: None) -> int:
    """An attempt, during which something happens."""
    thread = threading.Thread(target=interfere)
    thread.start()
    try:
        return pack.supervise(JOB)
    finally:
        thread.join()


def are_ready(runs: Sequence[RunDir]) -> None:
    wait_until(lambda: all(run.log_path.exists() and said(run) for run in runs), "all are ready")


def said(run: RunDir) -> list[str]:
    return run.log_path.read_text().splitlines()


def said_why(run: RunDir) -> list[object]:
    return [line["how"] for line in run.read_attempts()]


def outcomes(runs: Sequence[RunDir]) -> list[Outcome | None]:
    found = [run.read_outcome() for run in runs]
    return [outcome.outcome if outcome else None for outcome in found]


def test_every_run_has_its_part_of_the_node_and_its_own_end(tmp_path, slurm, monkeypatch):
    """One that fails takes nobody with it, and the job says that something went wrong."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    pack, runs = make_pack(tmp_path, "finish 0", "fail 0", "finish 0.5", "finish 0")
    assert supervise(pack) == 3
    F = Outcome.FINISHED
    assert outcomes(runs) == [F, Outcome.FAILED, F, F]
    seen = [json.loads(said(run)[0]) for run in runs]
    gpus = [line["CUDA_VISIBLE_DEVICES"] for line in seen]
    assert gpus == ["GPU-a", "GPU-a", "GPU-b", "GPU-b"]
    assert {line["XLA_PYTHON_CLIENT_MEM_FRACTION"] for line in seen} == {"0.3750"}
    n_cpus = len(os.sched_getaffinity(0))
    assert {line["cpus"] for line in seen} == {n_cpus // 4 if n_cpus >= 4 else n_cpus}
    for run in runs:
        submission = run.read_submission()
        assert submission is not None
        assert (submission.job_id, submission.worker is not None) == ("22_0", True)
    assert slurm.calls("scontrol") == []


def test_a_warning_reaches_all_and_the_job_comes_back_once_when_the_last_has_ended(tmp_path, slurm):
    """A requeue ends the job at once: whoever had still been at its checkpoint would lose it."""
    pack, runs = make_pack(tmp_path, "wait 0", "wait 1.5", "finish 1")
    (slurm.folder / "scontrol").write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        f"print('scontrol', *sys.argv[1:], time.time(), file=open({str(tmp_path / 'said')!r}, 'a'))"
    )

    def warn() -> None:
        are_ready(runs)
        os.kill(os.getpid(), signal.SIGURG)
        wait_until(lambda: said_why(runs[0]), "it has been asked to stop")  # else both at once
        os.kill(os.getpid(), signal.SIGTERM)

    assert supervise(pack, warn) == 75
    assert outcomes(runs) == [Outcome.PREEMPTED, Outcome.PREEMPTED, Outcome.FINISHED]
    (call,) = (tmp_path / "said").read_text().splitlines()
    assert call.startswith("scontrol requeue 22_0 ")
    assert float(call.split()[-1]) > max(float(said(run)[-1].split()[-1]) for run in runs)
    assert said_why(runs[0]) == ["SIGURG"]


def test_the_deadline_of_the_job_is_that_of_all_its_runs(tmp_path, slurm):
    pack, runs = make_pack(tmp_path, "wait 0", "wait 0.3")
    slurm.make("squeue", f"25 {time.time() + 5:.0f} UNLIMITED\n")
    assert supervise(pack) == 75
    assert outcomes(runs) == [Outcome.PREEMPTED] * 2
    asked = [call for call in slurm.calls("scontrol") if "show job" not in call]
    assert asked == ["requeue 22_0"]


def test_one_that_is_cancelled_stops_while_the_others_go_on(tmp_path, slurm):
    """Nobody can signal it from a login node without signalling all: the word is in its record."""
    pack, runs = make_pack(tmp_path, "wait 0", "finish 6")
    cancelled, other = runs

    def cancel() -> None:
        are_ready(runs)
        submission = cancelled.read_submission()
        assert submission is not None
        cancelled.write_submission(replace(submission, cancelled_at=time.time()))
        wait_until(cancelled.read_outcome, "it has stopped")
        assert other.read_outcome() is None

    assert supervise(pack, cancel) == 75
    assert outcomes(runs) == [Outcome.PREEMPTED, Outcome.FINISHED]
    assert slurm.calls("scontrol") == []  # the job is not asked to come back for it


def test_when_the_job_comes_back_only_what_is_left_to_do_is_done(tmp_path, slurm):
    pack, runs = make_pack(tmp_path, "finish 0", "fail 0", "wait 0", "wait 0")

    def warn() -> None:
        are_ready(runs)
        os.kill(os.getpid(), signal.SIGURG)

    assert supervise(pack, warn) == 75
    before = [len(said(run)) for run in runs]
    (runs[2].path / "order").write_text("finish 0")
    submission = runs[3].read_submission()
    assert submission is not None
    runs[3].write_submission(replace(submission, cancelled_at=time.time()))
    assert supervise(pack) == 0
    assert [len(said(run)) - n for run, n in zip(runs, before, strict=True)] == [0, 0, 2, 0]
    assert outcomes(runs)[:3] == [Outcome.FINISHED, Outcome.FAILED, Outcome.FINISHED]


def test_a_run_that_cannot_be_supervised_does_not_end_the_others(tmp_path, slurm, capfd):
    pack, runs = make_pack(tmp_path, "finish 0", "finish 0")
    (runs[0].log_path / "in the way").mkdir(parents=True)
    assert supervise(pack) != 0
    assert outcomes(runs)[1] is Outcome.FINISHED
    assert "in the way" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [
        ("0", 4, [("0", "0.1875")] * 4),
        ("0,1,2,3", 2, [("0,1", None), ("2,3", None)]),
        ("3,1", 2, [("3", None), ("1", None)]),
        ("MIG-a,MIG-b", 3, [("MIG-a", "0.3750"), ("MIG-a", "0.3750"), ("MIG-b", "0.3750")]),
    ],
)
def test_gpus_are_shared_out_and_their_memory_with_them(visible, count, expected):
    for place, (gpus, memory) in enumerate(expected):
        found = Share(place, count).environ({"CUDA_VISIBLE_DEVICES": visible, "A": "1"})
        assert found["CUDA_VISIBLE_DEVICES"] == gpus
        assert found.get("XLA_PYTHON_CLIENT_MEM_FRACTION") == memory
        assert found["A"] == "1"


def test_what_the_user_sets_for_a_gpu_is_shared_out(tmp_path):
    environ = {"CUDA_VISIBLE_DEVICES": "0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}
    assert Share(0, 3).environ(environ)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.3000"
    assert Share(0, 3).environ({"A": "1"}) == {"A": "1"}  # no GPU, nothing to share


WAITING, ACTIVE = (
    JobState(stage, "22_0", started_at=1.0) for stage in (Stage.WAITING, Stage.ACTIVE)
)


@pytest.mark.parametrize("job", [WAITING, ACTIVE])
@pytest.mark.parametrize(
    ("outcome", "cancelled_at", "state"),
    [
        (Outcome.FINISHED, None, State.FINISHED),
        (Outcome.FAILED, None, State.FAILED),
        (Outcome.PREEMPTED, 2.0, State.CANCELLED),
        (None, 2.0, State.CANCELLED),
    ],
)
def test_a_run_is_through_though_its_job_goes_on(tmp_path, job, outcome, cancelled_at, state):
    """A job that waits again, or runs, for the sake of the others."""
    run = make_run(tmp_path)
    run.write_submission(
        Submission(
            scheduler="slurm",
            job_id="22_0",
            job_name="h-abc",
            place=1,
            submitted_at=1.0,
            started_at=1.5,
            cancelled_at=cancelled_at,
        )
    )
    if outcome is not None:
        run.write_outcome(OutcomeRecord(outcome=outcome))
    assert examine(run, {run.path: job}).state is state


def test_a_run_that_stopped_half_way_waits_for_its_job_to_come_back(tmp_path):
    run = make_run(tmp_path)
    run.write_submission(
        Submission(scheduler="slurm", job_id="22_0", job_name="h-abc", place=1, started_at=1.5)
    )
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED))
    states = [examine(run, {run.path: job}).state for job in (ACTIVE, WAITING)]
    assert states == [State.STOPPING, State.QUEUED]
    # Nothing of it stops any more: it may wait for hours until the others let it begin again.
    run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message=SHORT_OF_MEMORY))
    row = examine(run, {run.path: ACTIVE})
    assert (row.state, row.message) == (
        State.QUEUED,
        "had too little memory; begins again at its last commit when the other runs of its job "
        "have ended",
    )
