"""What is made of the words of squeue and sacct, here spoken by stand-ins."""

import re
import time
from pathlib import Path

import pytest

from tests.runs import make_run
from vmcjob import scheduler
from vmcjob.errors import SchedulerError
from vmcjob.rundir import Activity, Heartbeat, Outcome, OutcomeRecord, RunDir, Submission
from vmcjob.runs.status import STALE_S, Stage, State, examine, rows
from vmcjob.runs.usage import Spent
from vmcjob.scheduler.receipt import reason_to_skip
from vmcjob.scheduler.slurm.partitions import list_partitions
from vmcjob.scheduler.slurm.patience import ask_patiently
from vmcjob.scheduler.slurm.queue import NO_TRACE


def submitted(root: Path, index: int, **changes) -> RunDir:
    run = make_run(root, f"h2-{index:010}")
    values = {"job_id": f"22_{index}", "job_name": "h2-abc", "array_index": index}
    run.write_submission(Submission(scheduler="slurm", **(values | changes)))
    return run


def leave_log(root: Path, job_id: str) -> None:
    """What SLURM opens first when a job begins."""
    folder = root / ".slurm" / "h2-abc"
    folder.mkdir(parents=True)
    (folder / f"{job_id}_0_log.err").touch()


def test_one_squeue_call_answers_for_all_runs_of_all_arrays(programs, tmp_path):
    """A pending reason comes in plain words, an unknown one in SLURM's own."""
    programs.make(
        "squeue",
        "22_0|h2-abc|RUNNING|1700000000|None\n"
        "22_1|h2-abc|PENDING|N/A|Priority\n"
        "22_2|h2-abc|PENDING|N/A|(QOSMaxGRESPerUser)\n"
        "23|h2-def|PENDING|N/A|SomethingNew\n"
        "24_0|h2-abc-other|RUNNING|1700000000|None\n",
    )
    runs = [submitted(tmp_path, index) for index in range(3)]
    runs.append(submitted(tmp_path, 3, job_id=None, job_name="h2-def", array_index=None))
    found = scheduler.look(runs)
    assert [found[run.path].stage for run in runs] == [Stage.ACTIVE, *[Stage.WAITING] * 3]
    assert found[runs[0].path].started_at == 1_700_000_000
    assert [found[run.path].words for run in runs[1:]] == [
        "others come first",
        "at a limit of the account or its quality of service (QOSMaxGRESPerUser)",
        "waits: SomethingNew",
    ]
    assert found[runs[3].path].job_id == "23"
    by_id, by_name = programs.calls("squeue")
    assert "--all --array --states=all --jobs=22 " in by_id
    assert "--name=h2-def " in by_name  # a submission that was cut short has no id
    assert programs.calls("sacct") == []


def test_the_accounting_does_not_overrule_the_queue(programs, tmp_path):
    """It is asked for one forgotten element and answers for its whole array, with old words."""
    programs.make("squeue", "22_0|h2-abc|RUNNING|1|None\n22_2|h2-abc|PENDING|N/A|Priority\n")
    words = "22_0|h2-abc|PENDING|Unknown\n22_1|h2-abc|CANCELLED by 0|1\n22_2|h2-abc|FAILED|1\n"
    programs.make("sacct", words)
    runs = [submitted(tmp_path, index) for index in range(3)]
    stages = [scheduler.look(runs)[run.path].stage for run in runs]
    assert stages == [Stage.ACTIVE, Stage.ENDED, Stage.WAITING]


def test_a_job_is_known_by_its_id_whatever_its_name(programs, tmp_path):
    """Administrators and job_submit.lua rename jobs; a cluster that is set up anew reuses ids."""
    squeue = programs.folder / "squeue"
    run = submitted(tmp_path, 0)
    for folder, stage in (("h2-abc", Stage.WAITING), ("another", Stage.ENDED)):
        programs.make("squeue")
        squeue.write_text(
            f'#!/bin/sh\ncase "$*" in *%Z*) echo "22_0|/runs/.slurm/{folder}" ;;\n'
            '*--jobs=22*) echo "22_0|prio_high|PENDING|N/A|Priority" ;; esac\n'
        )
        assert scheduler.look([run])[run.path].stage is stage


@pytest.mark.parametrize(
    ("word", "start", "stage"),
    [
        ("SPECIAL_EXIT", "N/A", Stage.WAITING),
        ("REVOKED", "N/A", Stage.WAITING),
        ("POWER_UP_NODE", "1700000000", Stage.ACTIVE),
        ("EXPEDITING", "N/A", Stage.WAITING),
        ("RESIZING", "1700000000", Stage.ACTIVE),
        ("STAGE_OUT", "1700000000", Stage.ACTIVE),
        ("RESV_DEL_HOLD", "N/A", Stage.WAITING),
        ("BOOT_FAIL", "1700000000", Stage.ENDED),
        ("NOT_INVENTED_YET", "N/A", Stage.WAITING),
        ("", "1700000000", Stage.ACTIVE),
    ],
)
def test_a_job_in_a_state_that_we_do_not_know_is_not_over(programs, tmp_path, word, start, stage):
    """A second job would be submitted beside it. The words are those of SLURM 20.11 to 25.05."""
    programs.make("squeue", f"22_0|h2-abc|{word}|{start}|JobHeldUser\n")
    run = submitted(tmp_path, 0)
    assert scheduler.look([run])[run.path].stage is stage


def test_an_id_that_the_controller_calls_invalid_is_over(programs, tmp_path):
    """squeue of one unknown id fails; of several, it leaves the unknown ones out, or fails too."""
    squeue = programs.folder / "squeue"
    invalid = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    squeue.write_text(
        f'#!/bin/sh\ncase "$*" in *--jobs=23\\ *) echo "23|h2-def|PENDING|N/A|Priority" ;;\n'
        f"*) {invalid} ;; esac\n"
    )
    squeue.chmod(0o755)
    runs = [submitted(tmp_path, 0)]
    assert scheduler.look(runs)[runs[0].path].stage is Stage.ENDED
    runs.append(submitted(tmp_path, 1, job_id="23", job_name="h2-def", array_index=None))
    assert [scheduler.look(runs)[run.path].stage for run in runs] == [Stage.ENDED, Stage.WAITING]


def test_a_job_that_only_its_worker_knows_is_neither_over_nor_joined_by_another(programs, tmp_path):
    """Its heartbeat comes from another host; without one for long, the queue's word counts."""
    programs.make("squeue")
    programs.make("scancel", code=1, error="scancel: error: Invalid job id 22_0\n")
    beat = {"phase": Activity.TRAIN, "step": 1, "n_steps": 9, "host": "elsewhere"}
    run = submitted(tmp_path, 0, started_at=time.time() - 900)
    run.write_heartbeat(Heartbeat(**beat, time=time.time() - 2 * STALE_S))
    assert examine(run, scheduler.look([run])).state is State.DEAD
    run.write_heartbeat(Heartbeat(**beat))
    row = examine(run, scheduler.look([run]))
    assert row.state is State.NOT_KNOWN
    assert row.message.startswith("its worker was heard of 0 s ago, and the batch system does not")
    assert (reason_to_skip(row) or "").startswith("not known: its worker was heard of")
    (done,) = scheduler.cancel([run])
    assert (done.error, done.result) == (None, "its job 22_0 is over; the run counts as cancelled")
    assert examine(run, scheduler.look([run])).state is State.CANCELLED


def test_a_job_that_waits_for_its_time_says_when_and_whether_it_comes_back(programs, tmp_path):
    """SLURM has one word for a job submitted with --begin and for one that is requeued.

    The latter has logs even where it was taken away before anybody of ours could speak.
    """
    lines = (
        "22_0|{0}|BeginTime\n22_1|{0}|BeginTime\n22_2|{1}|BeginTime\n22_3|{0}|Priority\n"
        "22_4|{0}|BeginTime\n"
    )
    at, unknown = "h2-abc|PENDING|1700000000", "h2-abc|PENDING|N/A"
    programs.make("squeue", lines.format(at, unknown))
    begun = {"started_at": 1_600_000_000.0}
    runs = [submitted(tmp_path, i, **({} if i in (0, 4) else begun)) for i in range(5)]
    leave_log(tmp_path, "22_4")
    found = scheduler.look(runs)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000))
    assert [found[run.path].words for run in runs] == [
        f"starts at {when} at the earliest",
        f"requeued; starts again at {when}",
        "requeued; starts again later",
        "others come first",
        f"requeued; starts again at {when}",
    ]


def test_a_suspended_job_says_so(programs, tmp_path):
    programs.make("squeue", "22_0|h2-abc|SUSPENDED|1700000000|None\n")
    run = submitted(tmp_path, 0)
    found = scheduler.look([run])[run.path]
    assert (found.stage, found.is_suspended) == (Stage.ACTIVE, True)
    assert found.words == "suspended by SLURM; goes on when it is resumed"


def test_accounting_is_asked_once_for_what_the_queue_has_forgotten(programs, tmp_path):
    programs.make("squeue")
    programs.make(
        "sacct",
        "22_0|h2-abc|CANCELLED by 1000|1700000000\n"
        "22_1|h2-abc|OUT_OF_MEMORY|1700000000\n"
        "22_[2,4-5%2]|h2-abc|CANCELLED by 1000|Unknown\n",
    )
    begun = {"started_at": time.time()}
    runs = [submitted(tmp_path, index, **begun) for index in range(6)]
    found = scheduler.look(runs)
    assert [found[run.path].stage for run in runs] == [Stage.ENDED] * 6
    assert [found[run.path].is_cancelled for run in runs] == [True, False, True, False, True, True]
    assert found[runs[1].path].words == "out of memory; ask for more (--mem)"
    assert [found[run.path].job_id for run in runs[3:]] == [None, "22_4", "22_5"]
    assert len(programs.calls("sacct")) == 1


def test_the_accounting_tells_what_jobs_have_used(programs, tmp_path):
    """The whole job has the times, its steps have the memory; a shared job has no run's figures."""
    programs.make(
        "sacct",
        "22_0|3600|1-00:10:30|.|8|2026-01-01T10:00:00|2026-01-01T10:05:00\n"
        "22_0.batch|3600|00:00.500||8|2026-01-01T10:05:00|2026-01-01T10:05:00\n"
        "22_0.0|3599|1-00:10:29|1536000K|8|2026-01-01T10:05:00|2026-01-01T10:05:00\n"
        "22_1|60|00:00:00||8|2026-01-01T10:00:00|2026-01-01T10:05:00\n"
        "22_[2-3]|0|00:00:00||8|2026-01-01T10:00:00|Unknown\n",
    )
    runs = [submitted(tmp_path, index) for index in range(3)]
    shared = submitted(tmp_path, 4, job_id="22_0", place=1)
    found = scheduler.ask_for_use([*runs, shared, make_run(tmp_path, "h2-0000000009")])
    day_s = 24 * 3600 + 10 * 60 + 30
    assert found == {
        runs[0]: Spent(1500.0, day_s / 3600, 8.0, 3600.0, 300.0),
        runs[1]: Spent(None, None, 8.0, 60.0, 300.0),  # it runs: nothing is accounted yet
    }
    assert len(programs.calls("sacct")) == 1
    programs.make("sacct", code=1, error="Slurm accounting storage is disabled\n")
    assert scheduler.ask_for_use(runs) == {}


def test_a_job_of_another_cluster_is_not_over_because_this_one_does_not_know_it(programs, tmp_path):
    """Clusters share home directories: typed on the wrong host, `submit` would add a second job."""
    programs.make("squeue", code=1, error="slurm_load_jobs error: Invalid job id specified\n")
    programs.make("scontrol", "ClusterName             = cm2\n")
    run = submitted(tmp_path, 0, cluster="cm4")
    row = examine(run, scheduler.look([run]))
    words = "job 22_0 is one of cluster cm4, and this host asks cm2; ask on a host of the former"
    assert (row.state, row.message) == (State.NOT_KNOWN, words)
    (done,) = scheduler.cancel([run])  # there is no scancel: this cluster's 22_0 is another job
    assert (done.error, done.result) == (None, f"counts as cancelled; {words} to end it")
    assert examine(run, scheduler.look([run])).state is State.CANCELLED
    ours = submitted(tmp_path, 1, cluster="cm2")
    assert scheduler.look([ours])[ours.path].stage is Stage.ENDED


@pytest.mark.parametrize("has_sacct", [False, True])
def test_without_accounting_what_is_forgotten_has_ended(programs, tmp_path, has_sacct):
    programs.make("squeue")
    if has_sacct:
        programs.make("sacct", code=1, error="Slurm accounting storage is disabled\n")
    run = submitted(tmp_path, 0)
    assert scheduler.look([run])[run.path].stage is Stage.ENDED


def test_what_the_queue_has_not_is_over_whatever_the_accounting_missed(programs, tmp_path):
    """It loses ends of jobs when its database is down; such a run could never be resumed."""
    programs.make("squeue")
    programs.make("sacct", "22_0|h2-abc|RUNNING|1700000000\n22_1|h2-abc|PENDING|Unknown\n")
    runs = [submitted(tmp_path, index, started_at=time.time()) for index in range(2)]
    found = scheduler.look(runs)
    assert [found[run.path].stage for run in runs] == [Stage.ENDED] * 2


def test_a_clock_that_is_ahead_hides_no_job_from_the_accounting(programs, tmp_path):
    programs.make("squeue")
    programs.make("sacct")
    run = submitted(tmp_path, 0)
    scheduler.look([run])
    (call,) = programs.calls("sacct")
    (since,) = [word for word in call.split() if word.startswith("--starttime=")]
    asked = time.mktime(time.strptime(since.partition("=")[2], "%Y-%m-%dT%H:%M:%S"))
    assert time.time() - asked > 300  # by more, SLURM's nodes do not believe each other


def test_a_failed_job_that_somebody_puts_back_waits_again(programs, tmp_path):
    """`scontrol requeue`: the next submit must not add another job. It is no matter of sacct."""
    programs.make("sacct", code=1, error="must not be called")
    run = submitted(tmp_path, 0, started_at=time.time())
    run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED))
    for word, states in (("PENDING", ["QUEUED"]), ("COMPLETING", ["STOPPING"]), ("", ["FAILED"])):
        programs.make("squeue", f"22_0|h2-abc|{word}|N/A|Priority\n" if word else "")
        assert [row.state for row in rows([run], scheduler.look([run]))[0]] == states
    assert programs.calls("sacct") == []


def test_a_job_that_left_no_trace_was_not_cancelled_by_anybody(programs, tmp_path):
    """It may have been, or could not start: without accounting nobody knows.

    A job that began has a log, be it empty.
    """
    programs.make("squeue")
    runs = [submitted(tmp_path, index) for index in range(2)]
    leave_log(tmp_path, "22_1")
    found = rows(runs, scheduler.look(runs))[0]
    assert [(row.state, row.message == NO_TRACE) for row in found] == [
        (State.DEAD, True),
        (State.DEAD, False),
    ]


@pytest.mark.parametrize(
    ("private", "states"),
    [
        ("accounts,jobs,usage", ["QUEUED", "RUNNING"]),
        ("none", ["DEAD", "NOT KNOWN"]),
        ("events", ["DEAD", "NOT KNOWN"]),
    ],
)
def test_a_job_of_somebody_else_that_slurm_does_not_show_has_not_ended(
    programs, tmp_path, monkeypatch, private, states
):
    """In a runs root of a group, one that looks dead would be submitted a second time."""
    programs.make("squeue")
    programs.make("scontrol", f"PreemptMode = REQUEUE\nPrivateData             = {private}\n")
    running = {"host": "elsewhere", "worker_pid": 1, "started_at": time.time()}
    runs = [submitted(tmp_path, 0), submitted(tmp_path, 1, **running)]
    assert [row.state for row in rows(runs, scheduler.look(runs))[0]] == ["DEAD", "NOT KNOWN"]
    assert programs.calls("scontrol") == []  # of their own, all are shown to everybody
    monkeypatch.setattr("os.geteuid", lambda: runs[0].path.stat().st_uid + 1)
    assert [row.state for row in rows(runs, scheduler.look(runs))[0]] == states


def test_settled_and_local_runs_are_no_business_of_slurms(programs, tmp_path):
    """`vmcjob status` on a hundred finished runs calls nothing."""
    programs.make("squeue", code=1, error="must not be called")
    finished = submitted(tmp_path, 0)
    finished.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED, time=time.time() + 1))
    local = make_run(tmp_path, "h2-1111111111")
    local.write_submission(Submission(scheduler="local", job_id="local-1"))
    assert scheduler.look([finished, local]) == {}
    assert programs.calls("squeue") == []


def test_a_machine_without_slurm_knows_nothing_of_jobs(programs, tmp_path):
    assert scheduler.look([submitted(tmp_path, 0)]) == {}


def test_what_squeue_complains_of_is_told_in_its_words(programs, tmp_path):
    words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    programs.make("squeue", code=1, error=words)
    with pytest.raises(SchedulerError, match=r"squeue: .*Unable to contact slurm controller"):
        scheduler.look([submitted(tmp_path, 0)])


def test_a_dry_run_asks_a_silent_slurm_once(programs, tmp_path, monkeypatch):
    """A controller that hangs was asked eleven times, for six minutes."""
    monkeypatch.setattr("vmcjob.scheduler.slurm.commands.HURRIED_S", 1.0)
    monkeypatch.setattr("vmcjob.scheduler.slurm.patience.pause", lambda seconds: 1 / 0)
    for name in ("scontrol", "squeue"):
        programs.make(name, hangs=True)
    with scheduler.hurried() as hurry:
        for ask in (list_partitions, lambda: ask_patiently(list_partitions)):
            with pytest.raises(SchedulerError, match=r"^scontrol: no answer within 1 s$"):
                ask()
        jobs = scheduler.Watch()
        assert jobs.look([submitted(tmp_path, 0)]) == {}
    assert str(hurry.silence) == str(jobs.error) == "scontrol: no answer within 1 s"
    assert len(programs.calls("scontrol")) <= 1  # none, if it was killed before its first word
    assert programs.calls("squeue") == []


def test_a_program_that_only_tries_again_is_not_waited_for(programs, tmp_path, monkeypatch):
    """Its complaints, the same at every attempt but for a number, are all that is known."""
    monkeypatch.setattr("vmcjob.scheduler.slurm.commands.TIMEOUT_S", 0.5)
    squeue = programs.folder / "squeue"
    lines = "".join(
        f"echo 'squeue: error: getaddrinfo() failed, attempt number {n}' >&2\n" for n in (-1, 0)
    )
    squeue.write_text(f"#!/bin/sh\n{lines}exec /bin/sleep 60\n")
    squeue.chmod(0o755)
    words = re.escape("squeue: no answer within 0.5 s: getaddrinfo() failed")
    with pytest.raises(SchedulerError, match=f"^{words}$"):
        scheduler.look([submitted(tmp_path, 0)])
