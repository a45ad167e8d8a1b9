"""What SLURM's programs see of the environment: nothing that would filter or replace what we say.

`SQUEUE_PARTITION` hides jobs from squeue, `SBATCH_TIME` replaces a script's own options, and inside
of a job all that describes this job leaks into the next one.
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
