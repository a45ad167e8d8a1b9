"""Whether this machine has the memory that a plan needs."""

import os

from vmcjob.plan import Plan
from vmcjob.spec import Size, format_bytes, measure


def largest(plan: Plan) -> Size:
    """The largest size of a run of the plan."""
    sizes = (measure(task.spec) for task in plan.tasks)
    return max(sizes, key=lambda size: (size.memory_bytes, size.store_bytes))


def why_too_large(plan: Plan) -> str | None:
    """The need that exceeds this machine's memory, in words; None if all fits."""
    try:
        here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):  # a system that does not say
        return None
    needed = largest(plan).memory_bytes
    if needed <= here:
        return None
    words = f"needs at least {format_bytes(needed)} of memory; this machine has"
    return f"{plan.source}: {words} {format_bytes(here)}"
