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
_GRES = re.compile(
    r"(?P<name>[^:,()]+)(:(?P<type>[^:,()]*[^:,()\d][^:,()]*))?(:(?P<count>\d+)[KMGT]?)?"
)
_BRACKETS = re.compile(r"\([^)]*\)")
_FORMAT = "%N|%t|%c|%m|%G|%f"


@dataclass(frozen=True)
class Node:
    """A machine of a partition, as SLURM has it in its books."""

    is_away: bool  # down, drained or kept for maintenance
    cpus: int
    memory_mb: float
    gres: tuple[tuple[str, str, int], ...]  # name, type and number
    features: frozenset[str]

    def can_run(self, options: Options) -> bool:
        """Whether it has what a job asks of each of its nodes."""
        mem = options.first("mem")
        is_enough = mem is None or memory_mb(mem) <= self.memory_mb
        return is_enough and options.cpus() <= self.cpus and self._has_devices(options)

    def _has_devices(self, options: Options) -> bool:
        """Whether it has the generic resources and features; alternatives are left to SLURM."""
        gres, wanted = options.first("gres"), options.first("constraint") or ""
        asked = [("gpu", "", options.gpus())] if gres is None else read_gres(gres)
        is_plain = not set(wanted) & set("|[]()*")
        features = {word for word in wanted.split("&") if word} if is_plain else set()
        return features <= self.features and all(
            self._count(*item[:2]) >= item[2] for item in asked
        )

    def _count(self, name: str, type_: str) -> int:
        """How many of a generic resource it has; without a type, of all types."""
        return sum(n for other, kind, n in self.gres if other == name and type_ in ("", kind))


def read_gres(text: str) -> tuple[tuple[str, str, int], ...]:
    """The items of a list like gpu:a100:2,nvme as name, type and number.

    What sinfo writes in brackets, like (S:0-1), is left out.
    """
    items = (item.strip().removeprefix("gres/") for item in _BRACKETS.sub("", text).split(","))
    found = (_GRES.fullmatch(item.replace("=", ":")) for item in items)
    return tuple(
        (match["name"], match["type"] or "", int(match["count"] or 1)) for match in found if match
    )


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
        _, state, cpus, memory, gres, features, _ = columns
        if cpus.isdigit() and memory.isdigit():
            is_away = _AWAY.match(state) is not None
            have = frozenset(features.split(","))
            yield Node(is_away, int(cpus), float(memory), read_gres(gres), have)
