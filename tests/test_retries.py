"""What goes on by itself, and how often; SLURM's programs are stand-ins."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs import make_run
from tests.test_supervisor import WORKER, slurm
from vmcjob.cli.show import run_facts
from vmcjob.errors import SchedulerError
from vmcjob.protocol import OUT_OF_MEMORY
from vmcjob.resources import DEFAULT_RETRIES, Request, Retries
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir, Submission
from vmcjob.runs.status import State, examine
from vmcjob.scheduler.slurm.script import Options
from vmcjob.site import Slurm
from vmcjob.slurm import SlurmJob
from vmcjob.spec import parse_spec
from vmcjob.supervisor import HostMemory, Supervisor
from vmcjob.supervisor.endings import Attempt, conclude
from vmcjob.supervisor.memory import Growth, find_growth
from vmcjob.supervisor.retries import Cause, cause_of_silence, is_out_of_memory, try_again

__all__ = ["slurm"]
JOB = SlurmJob("22_3", "25", 0)
BACK = SlurmJob("22_3", "25", 1)
TERM, URG, KILL = "SIGTERM", "SIGURG", -9
STOPPED = 75


@pytest.fixture
def run(tmp_path) -> RunDir:
    run = make_run(tmp_path)
    run.write_submission(
        Submission(scheduler="slurm", job_id="22_3", job_name="h2-abc", number=2, started_at=1.0)
    )
    return run


def told(run: RunDir) -> list[tuple[object, object]]:
    """What the history says of retries."""
    lines = run.read_attempts()
    return [(line["event"], line["how"]) for line in lines if "cause" in line]


def end(run: RunDir, code: int, reason: str | None, retries: Retries = DEFAULT_RETRIES) -> int:
    """How an attempt ends whose worker ended like this."""
    if code == STOPPED:
        run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped"))
    return conclude(Attempt(run, JOB, 1, code, reason, has_moved=True, retries=retries))


def test_a_preempted_run_goes_on_as_often_as_it_takes_and_says_so(run, slurm):
    for _ in range(3):
        assert end(run, STOPPED, TERM) == STOPPED
    assert slurm.calls("scontrol").count("requeue 22_3") == 3
    assert told(run) == [("retry", f"{n}: its job was taken away") for n in (1, 2, 3)]


def test_a_run_that_is_preempted_too_often_is_left_alone(run, slurm):
    limits = Retries(preemption=1)
    assert end(run, STOPPED, TERM, limits) == STOPPED
    assert end(run, STOPPED, TERM, limits) == STOPPED
    assert slurm.calls("scontrol").count("requeue 22_3") == 1
    assert told(run) == [
        ("retry", "1 of 1: its job was taken away"),
        ("gave up", "its job was taken away"),
    ]
    assert examine(run).message == (
        "its job was taken away 2 times, and retries.preemption is 1; vmcjob resume goes on"
    )
    # SLURM brings it back all the same: nothing is done.
    program = "raise SystemExit('started')"
    command = (sys.executable, "-c", program)
    again = Supervisor(str(run.path), "h2-abc", command, 1.0, retries=limits)
    assert again.supervise(BACK) == STOPPED
    assert not run.log_path.exists()
    assert examine(run).state is State.PREEMPTED


def test_a_wall_time_that_is_over_is_no_retry(run, slurm):
    for _ in range(3):
        end(run, STOPPED, URG, Retries(preemption=0))
    assert slurm.calls("scontrol").count("requeue 22_3") == 3
    assert told(run) == []


def test_submitting_again_gives_all_retries_back(run, slurm):
    limits = Retries(preemption=1)
    end(run, STOPPED, TERM, limits)
    end(run, STOPPED, TERM, limits)
    given = run.read_submission()
    assert given is not None
    run.write_submission(replace(given, number=3))
    end(run, STOPPED, TERM, limits)
    assert told(run)[-1] == ("retry", "1 of 1: its job was taken away")


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([], None),
        (["start"], Cause.NODE_FAILURE),
        (["start", "end"], None),
        (["start", "lost"], None),
        (["start", "end", "start"], Cause.NODE_FAILURE),
        (["start", "stop"], Cause.PREEMPTION),  # it had too little time left
        (["start", "stop", "retry"], None),
    ],
)
def test_an_attempt_that_could_not_say_how_it_ended(run, events, cause):
    given = run.read_submission()
    history = [{"event": event} for event in events]
    assert cause_of_silence(history, given) is cause
    assert cause_of_silence(history, replace(given, started_at=None)) is None, "of one before"


def test_a_node_may_fail_so_often_and_no_more(run, slurm):
    program = WORKER.replace("while not n_signals", "while False")
    command = (sys.executable, "-c", program, str(run.path), "1")
    limits = Retries(node_failure=1)
    run.append_attempt("start")
    again = Supervisor(str(run.path), "h2-abc", command, 1.0, retries=limits)
    assert again.supervise(BACK) == STOPPED
    assert "signals" in run.log_path.read_text(), "its worker has worked"
    run.append_attempt("start")
    text = run.log_path.read_text()
    assert again.supervise(BACK) == 1
    assert run.log_path.read_text() == text
    assert told(run) == [
        ("retry", "1 of 1: its node failed, or its job was killed"),
        ("gave up", "its node failed, or its job was killed"),
    ]
    assert (examine(run).state, examine(run).message) == (
        State.FAILED,
        "its node failed, or its job was killed 2 times, and retries.node_failure is 1; vmcjob "
        "resume goes on",
    )


LACKING = OutcomeRecord(outcome=Outcome.FAILED, message=OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("code", "reason", "outcome", "is_it"),
    [
        (KILL, None, None, True),
        (KILL, TERM, None, False),  # at the end of its grace time
        (-11, None, None, False),
        (1, None, LACKING, True),
        (1, None, OutcomeRecord(outcome=Outcome.FAILED, message="a bug"), False),
        (3, None, OutcomeRecord(outcome=Outcome.DIVERGED, message=OUT_OF_MEMORY), False),
    ],
)
def test_what_is_taken_for_a_lack_of_memory(code, reason, outcome, is_it):
    assert is_out_of_memory(code, reason, outcome) is is_it


def test_a_run_without_memory_begins_again_only_where_that_is_asked_for(run, slurm):
    assert end(run, KILL, None) == 9
    assert (slurm.calls("scontrol"), told(run)) == ([], [])
    limits = Retries(out_of_memory=2)
    for _ in range(2):
        run.clear_outcome()
        assert end(run, KILL, None, limits) == STOPPED
        assert examine(run).state is State.PREEMPTED
    run.clear_outcome()
    assert end(run, KILL, None, limits) == 9
    assert slurm.calls("scontrol").count("requeue 22_3") == 2
    assert examine(run).message == (
        "it had too little memory 3 times, and retries.out_of_memory is 2; vmcjob resume goes on"
    )


GROWING = Retries(out_of_memory=5, memory_factor=1.5, memory_ceiling="30GB")


@pytest.fixture
def folder(tmp_path, slurm) -> Path:
    """Where the job was submitted from, with an sbatch that takes everything as job 31."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for job in ("22", "31"):
        (folder / f"{job}_submission.sh").write_text("#SBATCH --mem=16GB\n")
        (folder / f"{job}_3_submitted.pkl").write_text("request")
    slurm.make("sbatch", "31\n")
    return folder


def lack_memory(
    run: RunDir, memory: HostMemory, retries: Retries = GROWING, *, has_gpus: bool = False
) -> int:
    """The end of an attempt whose worker the kernel has killed."""
    run.clear_outcome()
    attempt = Attempt(run, JOB, 1, KILL, None, has_moved=True, retries=retries)
    return conclude(replace(attempt, memory=memory, has_gpus=has_gpus))


def test_a_run_without_memory_asks_for_more_in_a_new_job_up_to_a_ceiling(run, slurm, folder):
    """A requeue keeps the memory of a job, and the run would lack it again."""
    memory = HostMemory(str(folder), "16GB")
    for asked_mb in (24576, 30720):
        assert lack_memory(run, memory) == STOPPED
        given = run.read_submission()
        assert given is not None
        assert (given.job_id, given.memory_mb) == ("31_3", asked_mb)
        assert f"--array=3 --job-name=h2-abc --mem={asked_mb}M " in slurm.calls("sbatch")[-1]
        assert run_facts(examine(run), run.read_record())["memory"] == (
            f"{asked_mb // 1024}GB per node, grown after a lack of memory"
        )
    assert told(run) == [
        ("retry", "1 of 5: it had too little memory; asks for 24GB in place of 16GB"),
        ("retry", "2 of 5: it had too little memory; asks for 30GB in place of 24GB"),
    ]
    assert lack_memory(run, memory) == 9
    assert examine(run).message == (
        "it had too little memory with 30GB per node, and retries.memory_ceiling allows no more; "
        "raise it, or use fewer sampler.walkers, and submit the spec again"
    )
    assert len(slurm.calls("sbatch")) == 2
    assert slurm.calls("scontrol") == [], "nothing is requeued"


def test_what_waits_for_a_run_waits_for_its_new_job(run, slurm, folder):
    """Its old job does not end well, and SLURM would never start what waits for that."""
    behind = make_run(run.path.parent, "h3-0000000001")
    behind.write_submission(
        Submission(scheduler="slurm", job_id="40_1", waits_for={run.path.name: "end"})
    )
    wishes = "afterok:22_31(unfulfilled)", "afterany:7(unfulfilled),afterok:22_3(unfulfilled)"
    slurm.make("squeue", "".join(f"{wish}\n" for wish in wishes))
    assert lack_memory(run, HostMemory(str(folder), "16GB")) == STOPPED
    assert "--jobs=40 --format=%E" in slurm.calls("squeue")[-1]
    assert slurm.calls("scontrol") == ["update JobId=40 Dependency=afterany:7,afterok:31_3"]


@pytest.mark.parametrize("why", ["on a device", "of unknown size", "of a whole node", "no factor"])
def test_memory_that_cannot_grow_is_asked_for_again_as_it_was(run, slurm, folder, monkeypatch, why):
    """Memory of a device is met within the run, by smaller chunks."""
    monkeypatch.delenv("SLURM_MEM_PER_NODE", raising=False)
    asked = {"of unknown size": None, "of a whole node": "0"}.get(why, "16GB")
    retries = replace(GROWING, memory_factor=None) if why == "no factor" else GROWING
    if why != "on a device":
        assert lack_memory(run, HostMemory(str(folder), asked), retries) == STOPPED
    else:
        run.write_outcome(LACKING)
        attempt = Attempt(run, JOB, 1, 1, None, has_moved=True, retries=retries, has_gpus=True)
        assert conclude(replace(attempt, memory=HostMemory(str(folder), asked))) == STOPPED
    assert slurm.calls("sbatch") == []
    assert slurm.calls("scontrol") == ["requeue 22_3"]


def test_memory_that_the_cluster_has_given_unasked_grows_too(run):
    given = run.read_submission()
    given_mb = SlurmJob("22", "22", 0).memory_mb({"SLURM_MEM_PER_NODE": "1000"})
    assert find_growth(HostMemory("/"), GROWING, given, given_mb) == Growth(1000, 1500)
    assert SlurmJob("22", "22", 0).memory_mb({}) is None


def test_a_job_that_slurm_does_not_take_is_told_and_the_record_is_as_before(
    run, slurm, folder, monkeypatch
):
    before = run.read_submission()
    slurm.make("sbatch", code=1, error="sbatch: error: Memory specification can not be satisfied\n")
    lack_memory(run, HostMemory(str(folder), "16GB"))
    assert run.read_submission() == before
    row = examine(run)
    assert row.state is State.FAILED
    assert "no job was taken that asks for 24GB in place of 16GB" in row.message


def test_a_busy_controller_is_asked_once_more_from_within_a_job(run, slurm, folder, monkeypatch):
    """A job that was taken without an answer is found, and it is this element's, no other's."""
    monkeypatch.setattr("vmcjob.slurm.resubmit.PAUSES_S", (0.0, 0.0))
    slurm.make("sbatch", code=1, error="sbatch: error: Socket timed out on send/recv operation\n")
    slurm.make("squeue", "22_3\n30_5\n31_3\n")
    assert lack_memory(run, HostMemory(str(folder), "16GB")) == STOPPED
    given = run.read_submission()
    assert given is not None
    assert (given.job_id, given.memory_mb) == ("31_3", 24576)
    assert len(slurm.calls("sbatch")) == 1
    slurm.make("squeue", "22_3\n30_5\n")
    assert lack_memory(run, HostMemory(str(folder), "16GB")) == 9
    assert len(slurm.calls("sbatch")) == 1 + 3


@pytest.mark.parametrize(
    ("text", "request_", "words"),
    [
        ("", Request(), None),
        ('mem = "16GB"', Request(), None),
        ('mem = "31GB"', Request(), "memory_ceiling is below the memory that is asked for, 31GB"),
        ("runs_per_job = 2\ngpus = 0", Request(), "set resources.runs_per_job = 1"),
        ("", Request(mem="0"), "all memory of a node is asked for already"),
        ("", Request(extra=("mem-per-cpu=2G",)), "ask for --mem in place of"),
    ],
)
def test_memory_that_could_not_grow_is_said_before_the_job_is_submitted(text, request_, words):
    spec = f"name = 'h'\nsystem.atoms = [['H', 0, 0, 0]]\n[resources]\n{text}\n"
    (point,) = parse_spec(spec, "h.toml").points
    options = Options(point.spec.resources, request_, Slurm(), GROWING)
    if words is None:
        options.check_growth()
    else:
        with pytest.raises(SchedulerError, match=words):
            options.check_growth()
    options = replace(options, retries=Retries(memory_factor=2.0))
    with pytest.raises(SchedulerError, match=r"set retries\.out_of_memory too"):
        options.check_growth()


def test_a_spec_has_the_last_word_on_retries(run):
    site = Retries(preemption=5, node_failure=0)
    assert Retries(node_failure=2).over(site) == Retries(preemption=5, node_failure=2)
    assert DEFAULT_RETRIES.over(site) == site


def test_causes_are_counted_apart(run):
    limits, given = Retries(preemption=1, node_failure=1), run.read_submission()
    assert given is not None
    assert try_again(run, given, Cause.PREEMPTION, limits) is None
    assert try_again(run, given, Cause.NODE_FAILURE, limits) is None
    assert try_again(run, given, Cause.PREEMPTION, limits) is not None
