"""What SLURM's programs see of the environment: nothing that would filter or replace what we say.

`SQUEUE_PARTITION` hides jobs from squeue, `SBATCH_TIME` replaces a script's own options, and inside
of a job all that describes this job leaks into the next one. Also which of their answers mean that
slurmctld is busy, for the login node and for jobs alike.
"""

import re
from collections.abc import Mapping

PLAIN: Mapping[str, str] = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
"""Words in English and times in seconds since the epoch."""
_INPUT = re.compile(r"(SLURM|SLURMD|SBATCH|SRUN|SALLOC|SQUEUE|SACCT|SINFO|SCANCEL|SCONTROL)_.*")
_NEEDED = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"}  # to find the cluster and to be let in


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what SLURM's programs take for options."""
    return {
        name: value
        for name, value in environ.items()
        if name in _NEEDED or not _INPUT.fullmatch(name)
    }


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """The same for programs whose answers are read by us."""
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
    """Whether slurmctld may answer otherwise in a moment."""
    return _BUSY.search(answer) is not None


def is_away(answer: str) -> bool:
    """Whether nobody listens: slurmctld is being restarted, or there is none."""
    return re.search(_AWAY, answer) is not None


def is_full(answer: str) -> bool:
    """Whether slurmctld has no room for another job, as far as its answer tells."""
    return re.search(_FULL, answer) is not None


def is_unclear(answer: str) -> bool:
    """Whether slurmctld may have done what it was asked, though it did not say so."""
    return re.search(_SILENT, answer) is not None
