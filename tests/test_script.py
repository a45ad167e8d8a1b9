"""What sbatch is told."""

import subprocess
from pathlib import Path

import pytest

from vmcjob.errors import SchedulerError, UsageError
from vmcjob.resources import Request, memory_mb
from vmcjob.scheduler.slurm.script import EARLY_S, PYTHON, Options
from vmcjob.site import Slurm
from vmcjob.spec import Resources, parse_spec


@pytest.mark.parametrize(
    ("time", "spare_s"),
    [
        ("00:04:00", 60.0),
        ("00:05:00", 75.0),
        ("00:06:00", 90.0),
        ("2-00:00:00", 90.0),
        ("00:01:00", 15.0),
    ],
)
def test_a_worker_is_asked_to_stop_by_us_before_slurm_warns_however_early(time, spare_s):
    """From four minutes on: in a shorter wall time, SLURM's may come first."""
    options = Options(Resources(), Request(time=time), Slurm())
    delay_s = options.parameters("h", Path("/runs"), 1)["signal_delay_s"]
    assert options.spare_s == spare_s
    assert delay_s >= 1  # SLURM takes 0 for none
    assert delay_s + EARLY_S <= max(spare_s, 1 + EARLY_S)


@pytest.mark.parametrize(
    ("time", "minutes"),
    [("1-0", 1440), ("1-12", 2160), ("1-12:30", 2190), ("0-1", 60), ("UNLIMITED", "UNLIMITED")],
)
def test_days_and_no_limit_are_said_as_sbatch_says_them(time, minutes):
    request = Request(time=time)
    request.check()
    assert Options(Resources(), request, Slurm()).parameters("h", Path("/runs"), 1)["time"] == (
        minutes
    )


@pytest.mark.parametrize("time", ["0", "0-0", "00:00", "30", "02:30", "unlimited", "1-100"])
def test_a_wall_time_that_people_and_sbatch_read_differently_is_refused(time):
    """To sbatch, "02:30" is two minutes and a half."""
    with pytest.raises(UsageError, match="--time: expected a wall time"):
        Request(time=time).check()


def test_all_memory_of_a_node_may_be_asked_for():
    """It is no small amount: a spec that needs some is not refused for it."""
    Request(mem="0").check()
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\nresources.mem = "0"\nresources.gpus = 0\n'
    (point,) = parse_spec(text, "h.toml").points
    assert Options(point.spec.resources, Request(), Slurm()).first("mem") == "0"
    assert [memory_mb(text) for text in ("16GB", "4000K", "1KB", "2T")] == [16384, 4, 1, 2**21]


def test_a_termination_does_not_end_a_job_in_which_nobody_listens_yet():
    """Python needs its seconds until then; who ended within the grace time would not come back."""
    program = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('here')"
    done = subprocess.run([*PYTHON, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "here\n")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu", 1),
        ("gpu:4", 4),
        ("gpu:a100", 1),
        ("gpu:a100:4", 4),
        ("gpu:1g.10gb:2", 2),
        ("gres/gpu:2,scratch:100", 2),
        ("gpu:a100:1,gpu:h100:2", 3),
        ("gpu:0", 0),
        ("shard:8", 1),
        ("lustre:4", 0),
        ("license:gpu:4", 0),
    ],
)
def test_gpus_are_counted_as_slurm_will_give_them(gres, gpus):
    """They cost hours, and a worker in an image sees them only if there are some."""
    assert Options(Resources(), Request(gres=gres), Slurm()).gpus() == gpus
    assert Options(Resources(gpus=3), Request(), Slurm()).gpus() == 3


@pytest.mark.parametrize(
    "extra", ["gpus=4", "gpus-per-task=2", "gpus-per-socket=1", "tres-per-node=gres/gpu:4"]
)
def test_gpus_have_one_spelling(extra):
    """Others would be paid for unseen."""
    with pytest.raises(SchedulerError, match=r"resources\.gpus or --gres"):
        Options(Resources(), Request(extra=(extra,)), Slurm()).extra()


@pytest.mark.parametrize("extra", ["clusters=cm4", "cluster=cm4,cm2", "clusters"])
def test_another_cluster_is_refused_for_it_would_never_be_asked(extra):
    """squeue, sacct and scancel ask this host's cluster, which would call such a job over."""
    with pytest.raises(SchedulerError, match=r"asks one cluster.* set SLURM_CONF"):
        Options(Resources(), Request(extra=(extra,)), Slurm()).extra()


@pytest.mark.parametrize("extra", ["arr=0-3", "a=0-3", "array=0-3", "job=x", "tim=1", "sig=KILL@1"])
def test_an_option_of_ours_is_known_by_its_beginning_too(extra):
    """sbatch completes it, and an array in an array would do every run once more."""
    with pytest.raises(SchedulerError, match=r"vmcjob sets --[a-z-]+ itself"):
        Options(Resources(), Request(extra=(extra,)), Slurm()).extra()


def test_other_options_of_sbatch_are_passed_on():
    extra = (
        "exclusive",
        "cluster-constraint=x",
        "gres-flags=enforce-binding",
        "time-min=10",
        "nodelist=n1",
        "no-kill",
    )
    extra += ("cpus-per-gpu=2", "mem-per-gpu=4G", "gpu-bind=closest", "tres-per-task=license/x:1")
    found = Options(Resources(), Request(extra=extra), Slurm()).extra()
    assert list(found) == [word.partition("=")[0] for word in extra]


def test_each_option_names_who_gave_it():
    """A flag wins over the spec, the spec over the profile; nobody gave the profile's default."""
    site = Slurm(partition="cpu", account="chem", qos="low")
    flags, spec = Request(partition="gpu"), Resources(qos="high", mem="16GB")
    found = Options(spec, flags, site, profile="site.toml").origins()
    assert found == {
        "partition": "--partition gpu",
        "account": "site.toml",
        "qos": "resources.qos",
        "mem": "resources.mem",
        "time": "default",
    }
