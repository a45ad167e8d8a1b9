"""Clusters that give a job all memory of its node if the job asks for none."""

import re

from vmcjob.errors import SchedulerError
from vmcjob.scheduler.slurm import commands
from vmcjob.scheduler.slurm.partitions import list_partitions
from vmcjob.scheduler.slurm.script import Options

_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
ALL_OF_A_NODE = (
    "this cluster gives a job that asks for no memory all memory of its node, so that other jobs "
    "wait; ask for less: mem in [resources] of the spec or [slurm] of the profile, or --mem"
)


def gives_all_memory(partition: str | None) -> bool:
    """Whether a job without `mem` gets all memory of its node; no if SLURM does not say.

    Args:
        partition: where the job goes; None for the default partition.
    """
    try:
        settings = dict(_SETTING.findall(commands.call("scontrol", "show", "config")))
        is_shared = "MEMORY" in settings.get("SelectTypeParameters", "")
        is_limited = settings.get("DefMemPerNode", "") != "UNLIMITED"
        if not is_shared or is_limited or "DefMemPerG" in settings.get("JobDefaults", ""):
            return False
        known = list_partitions()
    except SchedulerError:
        return False
    names = partition.split(",") if partition else [p.name for p in known if p.is_default]
    chosen = [p for p in known if p.name in names]
    return bool(chosen) and not any(p.has_default_memory for p in chosen)


def asks_for_memory(options: Options) -> bool:
    """Whether a job names its memory, in whatever way; a job of whole nodes need not."""
    extra = options.extra()
    is_named = options.first("mem") is not None or {"mem-per-cpu", "mem-per-gpu"} & set(extra)
    return bool(is_named) or options.is_exclusive
