"""The environment of SLURM's programs, without variables that filter or replace vmcjob's options.

`SQUEUE_PARTITION` hides jobs from squeue, `SBATCH_TIME` replaces a script's options, and inside a
job the variables of this job would affect the next one. This module also recognises answers which
mean that slurmctld is busy, on the login node and in jobs.
"""

import re
from collections.abc import Mapping

PLAIN: Mapping[str, str] = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
"""Words in English and times in seconds since the epoch."""
_INPUT = re.compile(r"(SLURM|SLURMD|SBATCH|SRUN|SALLOC|SQUEUE|SACCT|SINFO|SCANCEL|SCONTROL)_.*")
_NEEDED = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"}  # to find the cluster and to be let in


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that SLURM's programs read as options."""
    return {
        name: value
        for name, value in environ.items()
        if name in _NEEDED or not _INPUT.fullmatch(name)
    }


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for programs whose answers vmcjob reads."""
    return {**clean(environ), **PLAIN}


_AWAY = r"Unable to contact slurm controller|Connection refused"
_FULL = r"Resource temporarily unavailable|temporarily unable to accept job"
_REFUSING = r"standby mode|simultaneous requests|[Rr]ate.?limit"
_SILENT = (
    r"Socket timed out|Zero Bytes were transmitted|Message (receive|send) failure|"
    r"Connection (reset by peer|timed out)|[Nn]o answer within"
)
_BUSY = re.compile(f"{_FULL}|{_REFUSING}|{_SILENT}")


def is_busy(answer: str) -> bool:
    """Whether slurmctld may answer differently in a moment."""
    return _BUSY.search(answer) is not None


def is_away(answer: str) -> bool:
    """Whether slurmctld does not run, for example during a restart."""
    return re.search(_AWAY, answer) is not None


def is_full(answer: str) -> bool:
    """Whether slurmctld has no room for another job, according to its answer."""
    return re.search(_FULL, answer) is not None


def is_unclear(answer: str) -> bool:
    """Whether slurmctld may have carried out the request without confirming it."""
    return re.search(_SILENT, answer) is not None
