"""Resources that a run has used, beside those that its job asked for: a part of show."""

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from vmcjob.cli.text import format_duration

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir
    from vmcjob.runs.usage import Spent

MB_PER_GB = 1024
SMALL_SHARE = 0.4  # of what was asked for: less deserves advice
MARGIN = 1.5  # of the memory that is advised, above the peak
_OPTION = re.compile(r"^#SBATCH --(mem|cpus-per-task|time)=(\S+)", re.MULTILINE)


def describe_spent(run: "RunDir", script: str | None) -> dict[str, str]:
    """Rows of show: memory, CPUs, time, and advice where much more was asked for than was used."""
    from vmcjob.runs.usage import spent

    submission = run.read_submission()
    used = spent(run.read_attempts(), submission)
    asked = dict(_OPTION.findall(script or ""))
    asked_mb = submission.memory_mb if submission and submission.memory_mb else _memory(asked)
    minutes = asked.get("time", "")
    limit_s = 60.0 * int(minutes) if minutes.isdecimal() else None
    return {
        "peak memory": _of(used.peak_mb, asked_mb, _gigabytes),
        "CPUs busy": _of(used.busy_cpus, used.cpus, lambda n: f"{n:.3g}"),
        "time": _of(used.seconds, limit_s, format_duration),
        "waited": "" if used.waited_s is None else format_duration(used.waited_s),
        "advice": _advise(used, asked_mb, asked.get("cpus-per-task", "")),
    }


def _memory(asked: dict[str, str]) -> float | None:
    """The memory that a script asks for, in MB; None for none, and for all of a node."""
    from vmcjob.resources import memory_mb

    return (memory_mb(asked["mem"]) or None) if "mem" in asked else None


def _of(used: float | None, asked: float | None, write: Callable[[float], str]) -> str:
    """A use beside the amount that was asked for, as far as either is known."""
    if used is None:
        return ""
    return write(used) if asked is None else f"{write(used)} of {write(asked)}"


def _gigabytes(megabytes: float) -> str:
    return f"{megabytes / MB_PER_GB:.3g} GB"


def _advise(used: "Spent", asked_mb: float | None, cpus: str) -> str:
    """One line for who asks for much more than a run has used; else nothing."""
    if used.peak_mb and asked_mb and used.peak_mb < SMALL_SHARE * asked_mb:
        enough = math.ceil(MARGIN * used.peak_mb / MB_PER_GB)
        if enough * MB_PER_GB < asked_mb:
            asks = f"asks for {_gigabytes(asked_mb)} of memory, used {_gigabytes(used.peak_mb)}"
            return f"{asks} at most; --mem {enough}GB is enough"
    if cpus.isdecimal() and used.busy_cpus and used.busy_cpus < SMALL_SHARE * int(cpus):
        enough = math.ceil(used.busy_cpus)
        return f"asks for {cpus} CPUs, used {used.busy_cpus:.3g} on average; {enough} are enough"
    return ""
