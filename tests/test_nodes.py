"""A job for nodes that are drained or down waits for them; one for more than that is refused."""

from pathlib import Path

import pytest

from tests.runs import Programs
from tests.submissions import submit_to_slurm
from vmcjob.errors import SchedulerError
from vmcjob.plan import make_plan
from vmcjob.resources import Request
from vmcjob.site import Site
from vmcjob.spec import parse_spec

SPEC = """
name = "h"
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
[resources]
nodes = {nodes}
gpus = 1
cpus = 4
mem = "4G"
"""
# As SLURM 22.05 answers while its nodes are away, be the request possible or not.
SBATCH = """#!/bin/sh
case "$*" in *--test-only*)
    echo "allocation failure: Requested node configuration is not available" >&2
    exit 1 ;;
esac
echo "Submitted batch job 7"
"""
DRAINED = "n1|drain|4|8000|gpu:2(S:0-1)|intel,ib|gpu*\n"
NOT_ANSWERING = "n2|idle*|8|8000|gpu:a100:4(S:0,1),shard:8,nvme:2T|amd|gpu*\n"


@pytest.fixture
def cluster(programs) -> Programs:
    sbatch = programs.folder / "sbatch"
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    for name in ("srun", "squeue", "scontrol"):
        programs.make(name)
    return programs


def submit(root: Path, nodes: int, request: Request) -> list[str | None]:
    plans = [make_plan(parse_spec(SPEC.format(nodes=nodes), "h.toml"))]
    receipt = submit_to_slurm(root, plans, Site(), request, None)
    return [item.job_id for item in receipt.submitted]


@pytest.mark.parametrize(
    ("answer", "nodes", "flags"),
    [
        (DRAINED, 1, {}),
        (f"Welcome | to | the | cluster\n{DRAINED}{NOT_ANSWERING}", 2, {}),
        (DRAINED.replace("drain", "down*"), 1, {"gres": "gpu:2"}),
        (DRAINED.replace("*", "").replace("drain", "maint"), 1, {"partition": "gpu"}),
        (NOT_ANSWERING, 1, {"gres": "gres/gpu:a100:2,nvme", "constraint": "amd"}),
        (DRAINED, 1, {"constraint": "intel&ib"}),
        (DRAINED, 1, {"constraint": "[rack1|rack2]"}),  # SLURM judges alternatives itself
    ],
)
def test_a_job_whose_nodes_are_away_is_submitted_and_waits_for_them(
    cluster, tmp_path, answer, nodes, flags
):
    """In a maintenance, say: sbatch itself takes it, though its test does not."""
    cluster.make("sinfo", answer)
    assert submit(tmp_path, nodes, Request(**flags)) == ["7"]


@pytest.mark.parametrize(
    ("answer", "nodes", "flags"),
    [
        (DRAINED, 1, {"gres": "gpu:9"}),
        (NOT_ANSWERING, 1, {"gres": "gpu:h100:1"}),
        (NOT_ANSWERING, 1, {"gres": "gpu:a100:1,fpga:1"}),
        (DRAINED, 1, {"constraint": "intel&rack7"}),
        (DRAINED, 1, {"mem": "9G"}),
        (DRAINED, 2, {}),
        (DRAINED.replace("|4|", "|2|"), 1, {}),
        (DRAINED.replace("drain", "mix"), 1, {}),
        (DRAINED.replace("*", ""), 1, {}),  # of a partition that was not asked for
        ("", 1, {}),
    ],
)
def test_what_no_node_could_ever_run_is_refused_whoever_is_away(
    cluster, tmp_path, answer, nodes, flags
):
    cluster.make("sinfo", answer)
    with pytest.raises(SchedulerError, match="node configuration is not available"):
        submit(tmp_path, nodes, Request(**flags))
    assert list(tmp_path.glob("h-*")) == []
