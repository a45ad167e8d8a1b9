"""Processor time and memory of this worker, for the history of its run."""

import os
import resource
import sys

BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


def spent() -> dict[str, float]:
    """Processor seconds, the peak of memory in MB, and the processors that the worker may use."""
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
    }
