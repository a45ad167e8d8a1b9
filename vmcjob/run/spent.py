"""Processor time, memory and GPUs used by this worker, for the history of its run."""

import os
import resource
import sys

from vmcjob.run import gpus

BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


def spent() -> dict[str, float]:
    """Processor seconds, peak memory in MB, processors the worker may use, and use of its GPUs."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        n_cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        n_cpus = os.cpu_count() or 1
    return {
        "cpu_s": own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime,
        "peak_mb": own.ru_maxrss * BYTES_PER_UNIT / 2**20,
        "cpus": float(n_cpus),
    } | gpus.OWN.spent()
