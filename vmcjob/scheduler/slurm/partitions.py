"""SLURM's partitions and their limits: not enforced, they make a job beyond them wait for ever."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmcjob.errors import SchedulerError
from vmcjob.resources import memory_mb, wall_time_s
from vmcjob.scheduler.slurm import commands
from vmcjob.scheduler.slurm.script import Options


@dataclass(frozen=True)
class Partition:
    """A queue of machines, and the most that it gives to a job."""

    name: str
    is_default: bool
    max_time: str  # as SLURM writes it; UNLIMITED if there is no limit
    max_memory_mb: float  # per node
    qos: str = ""  # the quality of service whose limits are the partition's
    has_default_memory: bool = False  # for jobs that ask for none; else the cluster's counts

    def complaints(self, options: Options) -> Iterator[str]:
        """What the job asks for in vain, and how to ask for less."""
        if self.max_time[:1].isdigit() and wall_time_s(self.max_time) < options.wall_time_s:
            yield f"partition {self.name} allows a wall time of {self.max_time}; ask for less (-t)"
        mem = options.first("mem")
        if mem is not None and memory_mb(mem) > self.max_memory_mb:
            amount = f"{self.max_memory_mb:g} MB per node"
            yield f"partition {self.name} allows {amount}; ask for less (--mem)"


def list_partitions() -> list[Partition]:
    """All partitions, hidden ones too; SchedulerError if no cluster answers."""
    text = commands.call("scontrol", "--all", "--oneliner", "show", "partition")
    lines = [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in text.splitlines()
    ]
    return [_read(fields) for fields in lines if "PartitionName" in fields]


def choose(options: Options, partitions: Sequence[Partition]) -> list[Partition]:
    """The partitions that a job may go to: those that it names, else the default one."""
    named = options.first("partition")
    names = named.split(",") if named else [p.name for p in partitions if p.is_default]
    return [p for p in partitions if p.name in names]


def require_fit(options: Options, partitions: Sequence[Partition]) -> None:
    """SchedulerError if SLURM would start the job in none of the partitions that it may go to."""
    complaints = [list(p.complaints(options)) for p in choose(options, partitions)]
    if complaints and all(complaints):
        words = "; ".join(word for found in complaints for word in found)
        raise SchedulerError(f"{words}, or choose another partition (-p)")


def _read(fields: dict[str, str]) -> Partition:
    memory = fields.get("MaxMemPerNode", "UNLIMITED")
    return Partition(
        name=fields["PartitionName"],
        is_default=fields.get("Default") == "YES",
        max_time=fields.get("MaxTime", "UNLIMITED"),
        max_memory_mb=float(memory) if memory.isdigit() else math.inf,
        qos=fields.get("QoS", ""),
        has_default_memory=_has_default_memory(fields),
    )


def _has_default_memory(fields: dict[str, str]) -> bool:
    """Whether a job gets no more memory by silence; jobs of exclusive nodes get all in any case."""
    if fields.get("OverSubscribe", "").startswith("EXCLUSIVE"):
        return True
    given = fields.get("DefMemPerNode", "UNLIMITED"), fields.get("DefMemPerCPU", "UNLIMITED")
    return any(value.isdigit() for value in given) or "DefMemPerG" in fields.get("JobDefaults", "")
