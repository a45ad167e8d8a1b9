"""Resources that runs have used, beside those that their jobs asked for."""

import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmcjob.cli.text import format_duration

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir
    from vmcjob.runs.usage import Spent

MB_PER_GB = 1024
SMALL_SHARE = 0.4  # of what was asked for: less deserves advice
MARGIN = 1.5  # of the memory that is advised, above the peak
_OPTION = re.compile(r"^#SBATCH --(mem|cpus-per-task|time)=(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Asked:
    """What a job asks for on each node; None where this is not said."""

    memory_mb: float | None = None
    cpus: int | None = None
    limit_s: float | None = None

    @classmethod
    def least(cls, several: "Iterable[Asked]") -> "Asked":
        """The smallest request of each kind, so that advice about it holds for all."""
        rows = list(several)

        def smallest(values: "Iterable[float | None]") -> float | None:
            return min((value for value in values if value is not None), default=None)

        cpus = smallest(row.cpus for row in rows)
        return cls(
            smallest(row.memory_mb for row in rows),
            None if cpus is None else int(cpus),
            smallest(row.limit_s for row in rows),
        )


def read_asked(run: "RunDir", script: str | None) -> Asked:
    """What the run's latest job asks for, by its script and its submission."""
    from vmcjob.resources import memory_mb

    submission, options = run.read_submission(), dict(_OPTION.findall(script or ""))
    asked_mb = memory_mb(options["mem"]) or None if "mem" in options else None  # 0: all of a node
    minutes, cpus = options.get("time", ""), options.get("cpus-per-task", "")
    return Asked(
        memory_mb=submission.memory_mb if submission and submission.memory_mb else asked_mb,
        cpus=int(cpus) if cpus.isdecimal() else None,
        limit_s=60.0 * int(minutes) if minutes.isdecimal() else None,
    )


def describe_spent(run: "RunDir", script: str | None) -> dict[str, str]:
    """Rows of show: the resources used, and advice if the job asks for much more."""
    from vmcjob.runs.usage import spent

    used, asked = spent(run.read_attempts(), run.read_submission()), read_asked(run, script)
    return {
        "peak memory": memory_words(used, asked),
        "CPUs busy": cpu_words(used),
        "GPU busy": gpu_words(used),
        "GPU memory": gpu_memory_words(used),
        "time": time_words(used, asked),
        "waited": waiting_words(used),
        "advice": advise(used, asked),
    }


def left_words(asked: Asked, eta_s: float | None, started_at: float | None) -> str:
    """Time that a running job still needs, beside the wall time that it still has."""
    if eta_s is None:
        return ""
    words = f"about {format_duration(eta_s)}"
    if started_at is None or asked.limit_s is None:
        return words
    left_s = max(0.0, started_at + asked.limit_s - time.time())
    more = "; it goes on in another attempt" if left_s < eta_s else ""
    return f"{words}; its job has {format_duration(left_s)} of wall time left{more}"


def memory_words(used: "Spent", asked: Asked) -> str:
    """Peak of the host's memory, of the memory asked for."""
    return _of(used.peak_mb, asked.memory_mb, _gigabytes)


def cpu_words(used: "Spent") -> str:
    """CPUs that were busy on average, of those that the worker could use."""
    return _of(used.busy_cpus, used.cpus, lambda n: f"{n:.3g}")


def gpu_words(used: "Spent") -> str:
    """Share of the time in which the GPUs computed."""
    if used.gpus is None:
        return ""
    if used.gpu_busy is None:
        return "not known"
    several = f" of {used.gpus:.0f} GPUs" if used.gpus > 1 else ""
    return f"{used.gpu_busy:.0%}{several}"


def gpu_memory_words(used: "Spent") -> str:
    """Peak of a GPU's memory that the run itself used, of the memory of the GPU."""
    if used.gpus is not None and used.gpu_peak_mb is None:
        return "not known"
    return _of(used.gpu_peak_mb, used.gpu_mb, _gigabytes)


def time_words(used: "Spent", asked: Asked) -> str:
    """The longest attempt, of the wall time asked for."""
    return _of(used.seconds, asked.limit_s, format_duration)


def waiting_words(used: "Spent") -> str:
    """Time from the submission to the start."""
    return "" if used.waited_s is None else format_duration(used.waited_s)


def _of(used: float | None, asked: float | None, write: Callable[[float], str]) -> str:
    """A use beside the amount that was asked for, as far as either is known."""
    if used is None:
        return ""
    return write(used) if asked is None else f"{write(used)} of {write(asked)}"


def _gigabytes(megabytes: float) -> str:
    return f"{megabytes / MB_PER_GB:.3g} GB"


def advise(used: "Spent", asked: Asked) -> str:
    """One line for a job that asks for much more than it has used; else nothing."""
    if used.peak_mb and asked.memory_mb and used.peak_mb < SMALL_SHARE * asked.memory_mb:
        enough = math.ceil(MARGIN * used.peak_mb / MB_PER_GB)
        if enough * MB_PER_GB < asked.memory_mb:
            asks = f"asks for {_gigabytes(asked.memory_mb)} of memory"
            return f"{asks}, used {_gigabytes(used.peak_mb)} at most; --mem {enough}GB is enough"
    if used.gpu_busy is not None and used.gpu_busy < SMALL_SHARE:
        share = "sampler.walkers and resources.runs_per_job give it more to do"
        return f"its GPU computed {used.gpu_busy:.0%} of the time; {share}"
    if asked.cpus and used.busy_cpus and used.busy_cpus < SMALL_SHARE * asked.cpus:
        enough = math.ceil(used.busy_cpus)
        busy = f"used {used.busy_cpus:.3g} on average; {enough} are enough"
        return f"asks for {asked.cpus} CPUs, {busy}"
    return ""
