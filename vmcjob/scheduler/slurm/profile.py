"""A first site profile from what SLURM says of its partitions and of the user's accounts."""

import getpass
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmcjob.errors import SchedulerError
from vmcjob.resources import format_memory
from vmcjob.scheduler.slurm import commands
from vmcjob.scheduler.slurm.nodes import read_gres
from vmcjob.scheduler.slurm.wholenode import gives_all_memory

NO_GRES = ("", "(null)")
MIN_MB, MAX_MB = 4000, 32768
"""Bounds of the memory of a job: JAX needs half of the least to compile."""


class NodeGroup(NamedTuple):
    """Equal nodes of a partition, as sinfo lists them."""

    partition: str
    is_default: bool
    limit: str
    memory_mb: str
    cpus: str
    gres: str
    nodes: str

    @property
    def share_mb(self) -> int:
        """Memory of a job that asks for no other: a fair share of a GPU or CPU, within bounds."""
        n_gpus = sum(count for name, _, count in read_gres(self.gres) if name == "gpu")
        memory, n_cpus = (int(text.rstrip("+") or 0) for text in (self.memory_mb, self.cpus))
        return min(max(memory // (n_gpus or n_cpus or 1), MIN_MB), MAX_MB, memory)

    def __str__(self) -> str:
        """One line for people."""
        gres = "no GPU" if self.gres in NO_GRES else self.gres
        words = f"{self.nodes} nodes, {self.cpus} CPUs, {self.memory_mb} MB, {gres}"
        default = " (default)" if self.is_default else ""
        return f"{self.partition}{default}: {words}, at most {self.limit}"


def draft_profile(name: str, container_options: Sequence[str] = ()) -> str:
    """The text of a site profile for this cluster; SchedulerError if no cluster answers.

    Args:
        name: of the site.
        container_options: of Apptainer, without which no container starts here.
    """
    groups = list(_list_nodes())
    if not groups:
        raise SchedulerError("sinfo lists no partition; ask where jobs may go, or write a profile")
    lines = [*_lines(name, groups, _accounts())]
    lines += ["", "[container]", '# image = "~/vmcjob.sif"         # made by vmcjob image build']
    if container_options:
        words = json.dumps(list(container_options))
        lines.append(f"options = {words:<22} # Apptainer starts no container here without")
    return "\n".join(lines) + "\n"


def _list_nodes() -> Iterator[NodeGroup]:
    text = commands.call("sinfo", "--noheader", "--format=%P|%l|%m|%c|%G|%D")
    for line in text.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 6:
            name, limit, memory, cpus, gres, nodes = columns
            is_default = name.endswith("*")
            yield NodeGroup(name.rstrip("*"), is_default, limit, memory, cpus, gres, nodes)


def has_gpus(partition: str | None) -> bool:
    """Whether a partition, or the default one, has nodes with GPUs; no if SLURM does not say."""
    try:
        groups = list(_list_nodes())
    except SchedulerError:
        return False
    chosen = (g for g in groups if (g.partition == partition if partition else g.is_default))
    return any(name == "gpu" for group in chosen for name, _, _ in read_gres(group.gres))


def _accounts() -> list[str]:
    """The accounts that the user may charge; none where SLURM keeps no accounts."""
    question = ("sacctmgr", "--noheader", "--parsable2", "show", "associations")
    try:
        text = commands.call(*question, f"user={getpass.getuser()}", "format=account")
    except (SchedulerError, OSError, KeyError):  # no accounting, or a user without a name
        return []
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def _lines(name: str, groups: list[NodeGroup], accounts: list[str]) -> Iterator[str]:
    with_gpus = [group for group in groups if group.gres not in NO_GRES]
    chosen = next((g for g in with_gpus if g.is_default), None) or next(iter(with_gpus), None)
    chosen = chosen or next((g for g in groups if g.is_default), groups[0])
    yield "# A site profile: where runs are and where jobs go; vmcjob schema profile has all keys"
    yield f"name = {json.dumps(name)}"
    yield 'runs = "~/vmcjob-runs"           # on a file system that all nodes see'
    yield 'scheduler = "slurm"'
    yield from ("", "[slurm]", "# The partitions of this cluster:")
    yield from (f"#   {group}" for group in groups)
    yield f"partition = {json.dumps(chosen.partition)}"
    if len(accounts) == 1:
        yield f"account = {json.dumps(accounts[0])}"
    elif accounts:
        yield f"# account = {json.dumps(accounts[0])}    # or {', '.join(accounts[1:])}"
    yield 'time = "01:00:00"                # of a job whose spec asks for no other'
    if chosen.memory_mb.rstrip("+").isdigit() and gives_all_memory(chosen.partition):
        mem = json.dumps(format_memory(chosen.share_mb))
        yield f"mem = {mem:<26} # the same; without it, a job gets all memory of its node"
