"""What a partition never starts is refused, however the job comes to be sent there."""

import pytest

from tests.submissions import submit_to_slurm
from vmcjob.errors import SchedulerError
from vmcjob.plan import make_plan
from vmcjob.resources import Request
from vmcjob.rundir import list_runs
from vmcjob.scheduler import Slurm, SubmissionOptions
from vmcjob.site import Site
from vmcjob.spec import parse_spec

SPEC = """
name = "h"
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[resources]
time = "00:30:00"
"""
# As SLURM 22.05 says it, shortened.
PARTITIONS = """\
PartitionName=short AllowGroups=ALL Default=YES Hidden=NO MaxNodes=UNLIMITED MaxTime=01:00:00 \
MinNodes=0 Nodes=n[1-2] State=UP DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
PartitionName=long AllowGroups=ALL Default=NO Hidden=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 \
MinNodes=0 Nodes=n[1-2] QoS=part State=UP DefMemPerNode=1000 MaxMemPerNode=4096
PartitionName=endless AllowGroups=ALL Default=NO Hidden=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED \
MinNodes=0 Nodes=n[1-2] State=UP DefMemPerNode=1000 MaxMemPerCPU=100
"""


@pytest.fixture
def cluster(programs):
    programs.make("sbatch", "Submitted batch job 7\n")
    programs.make("scontrol", PARTITIONS)
    for name in ("srun", "squeue"):
        programs.make(name)
    return programs


def submit(root, spec: str = SPEC, **flags) -> None:
    plans = [make_plan(parse_spec(spec, "h.toml"))]
    submit_to_slurm(root, plans, Site(), Request(**flags), None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"time": "01:01:00"}, "partition short allows a wall time of 01:00:00; ask for less (-t)"),
        ({"time": "3-00:00:00", "partition": "long"}, "long allows a wall time of 2-00:00:00"),
        ({"time": "3-00:00:00", "partition": "long,short"}, "short allows a wall time of 01:00:00"),
        ({"mem": "5G", "partition": "long"}, "allows 4096 MB per node; ask for less (--mem)"),
    ],
)
def test_a_job_beyond_the_limits_of_its_partition_is_refused(cluster, tmp_path, flags, words):
    """Unnamed, it is the default one. sbatch takes such a job where limits are not enforced."""
    with pytest.raises(SchedulerError) as refusal:
        submit(tmp_path, **flags)
    assert words in str(refusal.value)
    assert str(refusal.value).endswith(", or choose another partition (-p)")
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize(
    "flags",
    [
        {"time": "01:00:00"},
        {"mem": "900G"},
        {"time": "03:00:00", "partition": "short,long"},  # one of them is enough
        {"mem": "4096MB", "time": "2-00:00:00", "partition": "long"},
        {"mem": "4G", "partition": "long"},
        {"mem": "1T", "time": "90-00:00:00", "partition": "endless"},
    ],
)
def test_a_job_within_them_is_submitted(cluster, tmp_path, flags):
    submit(tmp_path, **flags)
    assert len(list_runs(tmp_path)) == 1


WHOLE = "DefMemPerNode = UNLIMITED\nSelectTypeParameters = CR_CORE_MEMORY\n"
SAYS = "case $* in *config*) /bin/cat <<'E'\n{}E\n;; *) /bin/cat <<'E'\n{}E\n;; esac\n"


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [
        ({}, True),
        ({"mem": "4G"}, False),
        ({"extra": ("mem-per-cpu=1G",)}, False),
        ({"extra": ("exclusive",)}, False),
        ({"partition": "long"}, False),  # it gives 1000 MB
    ],
)
def test_a_job_that_would_get_all_memory_of_its_node_is_told(cluster, tmp_path, flags, is_told):
    """Without a word, one job a node is all that runs at a time."""
    (cluster.folder / "scontrol").write_text(f"#!/bin/sh\n{SAYS.format(WHOLE, PARTITIONS)}")
    options = SubmissionOptions(tmp_path, Site(), Request(**flags))
    words = Slurm().announce(options, [make_plan(parse_spec(SPEC, "h.toml"))])
    assert any("all memory of its node" in line for line in words) is is_told


def test_where_no_cluster_answers_there_is_a_way_to_stay_here(cluster, tmp_path):
    """Its programs may be installed on a workstation."""
    words = "Unable to contact slurm controller (connect failure)"
    cluster.make("scontrol", code=1, error=f"slurm_load_partitions error: {words}\n")
    with pytest.raises(
        SchedulerError, match="no cluster answers; with --local, runs stay here"
    ) as refusal:
        submit(tmp_path)
    assert words in str(refusal.value)
    assert cluster.calls("sbatch") == []


CONFIG = "AccountingStorageEnforce = associations,limits,qos\n"
QOS = "normal||\nshort|00:20:00|DenyOnLimit\nlong|1-00:00:00|OverPartQOS\npart|01:30:00|\n"
USERS = "lab|lab||normal|\nlab|guest||normal|00:10:00\nlab|lab|endless|short|\n"


def make_accounting(programs, config: str = CONFIG) -> None:
    """What SLURM's configuration and accounting say; partitions are as ever."""
    script = f'case "$*" in *config*) echo "{config}" ;; *) echo "{PARTITIONS}" ;; esac\n'
    for name, text in (
        ("scontrol", script),
        ("sacctmgr", f'case "$*" in *qos*) echo "{QOS}" ;; *) echo "{USERS}" ;; esac\n'),
    ):
        (programs.folder / name).write_text(f"#!/bin/sh\n{text}")
        (programs.folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("flags", "who", "most"),
    [
        ({"qos": "short"}, "quality of service short", "00:20:00"),
        ({"account": "guest"}, "account guest", "00:10:00"),
        ({"partition": "endless"}, "quality of service short", "00:20:00"),  # the default there
        ({"partition": "long", "time": "02:00:00"}, "quality of service part", "01:30:00"),
        (
            {"partition": "long", "time": "1-06:00:00", "qos": "long"},
            "quality of service long",
            "1-00:00:00",
        ),
    ],
)
def test_a_wall_time_beyond_the_accounting_is_refused(cluster, tmp_path, flags, who, most):
    """sbatch takes the job, which then waits for ever: QOSMaxWallDurationPerJobLimit."""
    make_accounting(cluster)
    with pytest.raises(SchedulerError) as refusal:
        submit(tmp_path, **flags)
    assert str(refusal.value) == f"{who} allows a wall time of {most}; ask for less (-t)"
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize(
    ("flags", "config"),
    [
        ({}, CONFIG),
        ({"partition": "long", "time": "12:00:00", "qos": "long"}, CONFIG),
        ({"partition": "short,endless"}, CONFIG),  # one of them is enough
        ({"qos": "short", "time": "00:20:00"}, CONFIG),
        ({"qos": "short"}, "AccountingStorageEnforce = associations"),
    ],
)
def test_a_wall_time_within_the_accounting_is_submitted(cluster, tmp_path, flags, config):
    """Also beyond limits that the cluster does not enforce."""
    make_accounting(cluster, config)
    submit(tmp_path, **flags)
    assert len(list_runs(tmp_path)) == 1
