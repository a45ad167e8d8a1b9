"""Device hours of a run, from its history alone."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs import make_run
from vmcjob.cli.spent import Asked, advise, describe_spent, gpu_memory_words, gpu_words
from vmcjob.cli.usage import RunUse, advise_all
from vmcjob.run.spent import spent as spent_by_worker
from vmcjob.rundir import Activity, Heartbeat, Submission
from vmcjob.runs.usage import Spent, Work, spent, usage, work
from vmcjob.spec import Resources


def line(event: str, time: object, **details: object) -> dict[str, object]:
    return {"event": event, "time": time, "host": "n1", "pid": 7} | details


def beat(time: float, pid: int = 7) -> Heartbeat:
    return Heartbeat(phase=Activity.TRAIN, step=1, n_steps=2, pid=pid, host="n1", time=time)


START, END = line("start", 100.0), line("end", 160.0, outcome="PREEMPTED")
AGAIN = line("start", 1000.0, pid=8)


@pytest.mark.parametrize(
    ("attempts", "last", "expected"),
    [
        ([], None, Work()),
        ([START, END], None, Work(60.0, 1)),
        ([START, line("stop", 150.0), END, AGAIN, line("end", 1030.0)], None, Work(90.0, 2)),
        ([START, line("lost", 140.0, worker_pid=6)], None, Work(40.0, 1)),
        ([START, line("lost", 120.0, rank=1), END], None, Work(60.0, 1)),  # one loss, counted once
        ([START], beat(130.0), Work(30.0, 1)),  # at work, or killed: until it was last heard of
        ([START], beat(130.0, pid=9), Work(0.0, 1, is_complete=False)),  # of another worker
        ([START, AGAIN, line("end", 1030.0)], None, Work(30.0, 2, is_complete=False)),
        ([START, line("end", 90.0)], None, Work(0.0, 1)),  # clocks of hosts differ
        ([line("start", "noon"), line("end", 10**400), line("end", True)], None, Work()),
    ],
)
def test_work_lasts_from_each_start_to_its_end(attempts, last, expected):
    """The waiting between attempts is no work; an end that nobody saw makes it a lower bound."""
    assert work(attempts, last) == expected


@pytest.mark.parametrize(
    ("resources", "is_job", "devices"),
    [
        (Resources(), True, 1.0),
        (Resources(gpus=0), True, 1.0),  # of a machine without a GPU the unit is the machine
        (Resources(gpus=0, nodes=3), True, 3.0),
        (Resources(gpus=4, nodes=2), True, 8.0),
        (Resources(gpus=1, runs_per_job=4), True, 0.25),  # runs of a job add up to its GPUs
        (Resources(gpus=1, runs_per_job=4), False, 1.0),  # on this machine they take turns
    ],
)
def test_an_hour_of_work_costs_an_hour_of_each_device(resources, is_job, devices):
    found = usage(Work(3600.0, 1), resources, is_job=is_job)
    assert (found.devices, found.used_hours) == (devices, devices)


def test_what_is_left_and_what_was_asked_for_are_hours_of_all_devices():
    """No time left is known, or no wall time asked for: nothing is said, and not zero."""
    resources = Resources(gpus=2, time="00:30:00")
    found = usage(Work(3600.0, 1), resources, is_job=True, eta_s=1800.0)
    assert (found.forecast_hours, found.asked_hours) == (3.0, 1.0)
    found = usage(Work(3600.0, 1), replace(resources, time=None), is_job=True)
    assert (found.forecast_hours, found.asked_hours) == (None, None)


def ended(cpu_s: float, peak_mb: float, time: float = 200.0) -> dict[str, object]:
    return line("end", time, cpu_s=cpu_s, peak_mb=peak_mb, cpus=8.0)


def test_the_most_that_any_attempt_has_used_counts(tmp_path):
    """Of an attempt before, whose worker noted no use, nothing but its time is known."""
    given = Submission(scheduler="slurm", job_id="7", submitted_at=50.0, started_at=90.0)
    history = [START, ended(300.0, 3000.0), AGAIN, ended(90.0, 5000.0, 1030.0)]
    assert spent(history, given) == Spent(5000.0, 3.0, 8.0, 100.0, 40.0)
    assert spent([START, END], None) == Spent(seconds=60.0)
    damaged = line("end", 160.0, cpu_s="much", peak_mb=True, cpus=-1)
    assert spent([START, damaged], None) == Spent(seconds=60.0)
    assert spent([], None) == Spent()


def test_the_wait_of_a_requeued_job_ends_with_its_first_start():
    """The work between the first start and the last one is no waiting."""
    given = Submission(scheduler="slurm", job_id="7", submitted_at=50.0, started_at=1000.0)
    assert spent([START, END, AGAIN], given).waited_s == 50.0
    assert spent([line("start", 10.0), START, END, AGAIN], given).waited_s == 50.0


def test_the_use_of_gpus_is_the_most_of_any_attempt():
    noted = {"gpus": 2.0, "gpu_busy": 0.5, "gpu_mb": 81920.0}
    history = [START, line("end", 160.0, **noted, gpu_peak_mb=2048.0)]
    history += [AGAIN, line("end", 1030.0, **noted | {"gpu_busy": 0.125}, gpu_peak_mb=4096.0)]
    found = spent(history, None)
    assert (found.gpus, found.gpu_busy, found.gpu_peak_mb) == (2.0, 0.5, 4096.0)
    assert (gpu_words(found), gpu_memory_words(found)) == ("50% of 2 GPUs", "4 GB of 80 GB")
    assert advise(Spent(gpus=1.0, gpu_busy=0.12), Asked()).startswith("its GPU computed 12% of")
    assert gpu_words(Spent(gpus=1.0)) == gpu_memory_words(Spent(gpus=1.0)) == "not known"
    assert gpu_words(Spent()) == gpu_memory_words(Spent()) == ""


def test_advice_about_several_runs_holds_for_each_of_them():
    """Memory that one run of a sweep does not use, another one may need."""
    asked = Asked(memory_mb=65536.0, cpus=8)
    small, large = (Spent(peak_mb=peak, busy_cpus=7.0) for peak in (1024.0, 40960.0))
    runs = [RunUse(f"h2-{n}", "h2", asked, use, None) for n, use in enumerate((small, large))]
    assert advise_all(runs[:1]) == [
        "h2: asks for 64 GB of memory, used 1 GB at most; --mem 2GB is enough"
    ]
    assert advise_all(runs) == []
    other = RunUse("he-0", "he", replace(asked, memory_mb=2048.0), small, None)
    assert Asked.least([asked, other.asked]) == other.asked


SCRIPT = "#SBATCH --cpus-per-task=8\n#SBATCH --mem=64GB\n#SBATCH --time=30\n"


@pytest.mark.parametrize(
    ("peak_mb", "cpu_s", "script", "advice"),
    [
        (
            3174.4,
            700.0,
            SCRIPT,
            "asks for 64 GB of memory, used 3.1 GB at most; --mem 5GB is enough",
        ),
        (50_000.0, 120.0, SCRIPT, "asks for 8 CPUs, used 1.2 on average; 2 are enough"),
        (50_000.0, 700.0, SCRIPT, ""),
        (100.0, 1.0, SCRIPT.replace("64GB", "0").replace("--cpus-per-task=8", "--nodes=1"), ""),
        (100.0, 1.0, None, ""),
    ],
)
def test_who_asks_for_much_more_than_is_used_is_told(tmp_path, peak_mb, cpu_s, script, advice):
    run = make_run(tmp_path)
    text = "".join(f"{json.dumps(event)}\n" for event in (START, ended(cpu_s, peak_mb)))
    run.attempts_path.write_text(text)
    rows = describe_spent(run, script)
    assert rows["advice"] == advice
    if script == SCRIPT:
        assert rows["peak memory"].endswith(" GB of 64 GB")
        assert rows["CPUs busy"] == f"{cpu_s / 100:.3g} of 8"


def test_a_worker_knows_its_own_use():
    """The kernel's own account of this process, in megabytes, is the one to agree with."""
    noted = spent_by_worker()
    (peak,) = (
        int(row.split()[1])
        for row in Path("/proc/self/status").read_text().splitlines()
        if row.startswith("VmHWM:")
    )
    assert noted["peak_mb"] == pytest.approx(peak / 1024, rel=0.05)
    assert noted["cpu_s"] >= time.process_time() * 0.95
