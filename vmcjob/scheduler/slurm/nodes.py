"""Nodes that are away for now: of what only they could run, SLURM says what it says of nonsense."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vmcjob.errors import SchedulerError
from vmcjob.resources import memory_mb
from vmcjob.scheduler.slurm import commands
from vmcjob.scheduler.slurm.script import Options

UNFIT = "node configuration is not available"
"""SLURM's words for a job that none of the nodes that are there could run."""
_AWAY = re.compile(r"(down|drain|drng|fail|failg|maint|boot|unk|resv)\b|.*\*")
_GPUS = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)")
_FORMAT = "%N|%t|%c|%m|%G"


@dataclass(frozen=True)
class Node:
    """A machine of a partition, as SLURM has it in its books."""

    is_away: bool  # down, drained or kept for maintenance
    cpus: int
    memory_mb: float
    gpus: int

    def can_run(self, options: Options) -> bool:
        """Whether it has what a job asks of each of its nodes."""
        mem = options.first("mem")
        is_enough = mem is None or memory_mb(mem) <= self.memory_mb
        return is_enough and options.cpus() <= self.cpus and options.gpus() <= self.gpus


def is_only_away(options: Options, refusal: SchedulerError) -> bool:
    """Whether a job was refused for nodes that may come back: sbatch takes it, and it waits."""
    if UNFIT not in str(refusal):
        return False
    partition = options.first("partition")
    where = [f"--partition={partition}"] if partition else []
    try:
        text = commands.call(
            "sinfo", "--noheader", "--all", "--Node", f"--format={_FORMAT}|%P", *where
        )
    except SchedulerError:
        return False
    fit = [node for node in _read(text, is_named=bool(partition)) if node.can_run(options)]
    return len(fit) >= options.resources.nodes and any(node.is_away for node in fit)


def _read(text: str, *, is_named: bool) -> Iterator[Node]:
    """The nodes of named partitions, else of the default one, which has an asterisk."""
    for line in text.splitlines():
        columns = line.strip().split("|")
        if len(columns) != _FORMAT.count("|") + 2 or not (is_named or columns[-1].endswith("*")):
            continue  # what a site's wrapper says, or another partition
        _, state, cpus, memory, gres, _ = columns
        if cpus.isdigit() and memory.isdigit():
            gpus = sum(map(int, _GPUS.findall(gres)))
            yield Node(_AWAY.match(state) is not None, int(cpus), float(memory), gpus)
