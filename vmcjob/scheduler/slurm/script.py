"""From a request to the text of an sbatch script: pure, and the same with and without SLURM."""

import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmcjob import protocol
from vmcjob.errors import SchedulerError
from vmcjob.resources import (
    ALL_MEMORY,
    DEFAULT_RETRIES,
    UNLIMITED,
    Request,
    Retries,
    memory_mb,
    wall_time_s,
)
from vmcjob.scheduler.slurm import commands
from vmcjob.site import Slurm
from vmcjob.spec import Resources

WARNING = protocol.WARNING.name.removeprefix("SIG")  # as submitit and sbatch have it
MAX_SPARE_S = 90.0  # stop so long before the end of the wall time: commit, and be requeued
SPARE_SHARE = 0.25  # but not a larger share of a short wall time
EARLY_S = 60.0  # by so much may SLURM's own warning come too early, says sbatch's manual
OWNED = {
    "account", "array", "chdir", "constraint", "cpus-per-task", "error", "export", "gpus-per-node",
    "gres", "help", "job-name", "mem", "no-requeue", "nodes", "ntasks", "ntasks-per-node",
    "open-mode", "output", "parsable", "partition", "qos", "requeue", "signal", "test-only", "time",
    "usage", "version", "wait", "wckey", "wrap",
}  # fmt: skip
GPU_OPTIONS = {"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}
PYTHON = ("sh", "-c", 'trap "" TERM; exec "$0" "$@"', sys.executable)
"""What starts Python on a compute host: deaf to SIGTERM until we listen, or it would end without a
word. What we have missed shows in the time that the job has left, for which SLURM is asked."""
_OURS = re.compile(r"#SBATCH --(array|chdir|dependency|error|output|signal)\b")
_EXTRA = re.compile(r"(?P<key>[a-z][a-z0-9-]*)(?:=(?P<value>.+))?")


@dataclass(frozen=True)
class Options:
    """All that sbatch is told about one kind of job."""

    resources: Resources
    flags: Request
    site: Slurm
    retries: Retries = DEFAULT_RETRIES
    profile: str = "the site profile"  # in words

    @property
    def wall_time_s(self) -> float:
        return wall_time_s(self.first("time") or self.site.time)

    @property
    def spare_s(self) -> float:
        """How long before the end of the wall time a worker is asked to stop."""
        return min(MAX_SPARE_S, SPARE_SHARE * self.wall_time_s)

    def first(self, key: str) -> str | None:
        """What a flag says, else the spec, else the site."""
        wishes = (getattr(source, key, None) for source in (self.flags, self.resources, self.site))
        return next((wish for wish in wishes if wish is not None), None)

    def origins(self) -> dict[str, str]:
        """Who gave each option, by its name: a flag, a key of the spec, the profile, or nobody."""
        found: dict[str, str] = {}
        for key, default in vars(Slurm()).items():
            if (value := getattr(self.flags, key, None)) and isinstance(value, str):
                found[key] = f"--{key} {value}"
            elif getattr(self.resources, key, None) is not None:
                found[key] = f"resources.{key}"
            elif (value := getattr(self.site, key)) and isinstance(value, str):
                found[key] = "default" if value == default else self.profile
        return found

    def extra(self) -> dict[str, Any]:  # values as submitit takes them: strings and True
        """Further options of sbatch; SchedulerError for those that have a key of their own."""
        found: dict[str, Any] = {}
        for text in (*self.site.extra, *self.flags.extra):
            match = _EXTRA.fullmatch(text)
            if match is None:
                raise SchedulerError(f"extra '{text}': expected KEY or KEY=VALUE, like exclusive")
            _refuse(text, match["key"], match["value"] or "")
            found[match["key"]] = match["value"] or True
        return found

    def check_growth(self) -> None:
        """SchedulerError if memory is to grow, and cannot."""
        retries, mem = self.retries, self.first("mem")
        if retries.memory_factor is None:
            return
        why = ""
        if not retries.out_of_memory:
            why = "how often is not said; set retries.out_of_memory too"
        elif self.resources.runs_per_job > 1:
            why = "runs that share a job keep its memory; set resources.runs_per_job = 1"
        elif mem == ALL_MEMORY:
            why = "all memory of a node is asked for already; leave one of both out"
        elif "mem-per-cpu" in self.extra() or "mem-per-gpu" in self.extra():
            why = (
                "it is memory per node that grows; ask for --mem in place of memory per CPU or GPU"
            )
        elif retries.memory_ceiling and mem and memory_mb(retries.memory_ceiling) < memory_mb(mem):
            why = f"retries.memory_ceiling is below the memory that is asked for, {mem}"
        if why:
            raise SchedulerError(f"retries.memory_factor: {why}")

    def gpus(self) -> int:
        """GPUs of a node."""
        gres = self.first("gres")
        return self.resources.gpus if gres is None else sum(map(_gpus, gres.split(",")))

    def runs_per_job(self, max_parallel: int | None) -> int:
        """How many runs share a job; SchedulerError if they cannot share its GPUs evenly."""
        count, n_gpus = self.resources.runs_per_job, self.gpus()
        count = min(count, max_parallel or count)
        if n_gpus and count % n_gpus and n_gpus % count:
            raise SchedulerError(
                f"resources.runs_per_job: {count} runs cannot share {n_gpus} GPUs evenly; expected "
                "as many runs as GPUs, or a multiple of the one that the other divides"
            )
        return count

    def cpus(self) -> int:
        """CPUs of a node; SLURM gives one to who asks for none."""
        extra = self.extra()
        per_gpu, least = (_number(extra.get(key)) for key in ("cpus-per-gpu", "mincpus"))
        return max(self.resources.cpus or 1, per_gpu * self.gpus(), least)

    @property
    def is_exclusive(self) -> bool:
        """Whether it gets whole nodes, with all that they have, and pays for that."""
        return "exclusive" in self.extra()

    def parameters(self, job_name: str, folder: Path, max_parallel: int) -> dict[str, Any]:
        """The job in submitit's words."""
        resources, gres, seconds = self.resources, self.first("gres"), self.wall_time_s
        return {
            "job_name": job_name,
            "nodes": resources.nodes,
            "ntasks_per_node": 1,
            "cpus_per_task": resources.cpus,
            "gpus_per_node": None if gres or not resources.gpus else resources.gpus,
            "gres": gres,
            "time": UNLIMITED if seconds == math.inf else math.ceil(seconds / 60),
            "mem": self.first("mem"),
            "account": self.first("account"),
            "partition": self.first("partition"),
            "qos": self.first("qos"),
            "constraint": self.first("constraint"),
            # After we have asked the worker ourselves; for a preemption, it comes in time anyway.
            "signal_delay_s": math.ceil(max(1.0, self.spare_s - EARLY_S)),
            "array_parallelism": max_parallel,
            "wckey": None,  # submitit's own would be refused where wckeys are enforced
            "setup": [*self.site.setup, f"export SUBMITIT_PREEMPT_SIGNAL={WARNING}"],
            "srun_args": self._srun_arguments(),
            # Started there, Python finds no modules of the user's beside its own.
            "additional_parameters": {"requeue": True, "chdir": str(folder)} | self.extra(),
        }

    def _srun_arguments(self) -> list[str]:
        cpus = self.resources.cpus
        # From 22.05 to 23.11, srun does not see what sbatch was told about CPUs.
        found = [] if cpus is None else [f"--cpus-per-task={cpus}"]
        # The ranks beside one that ended badly would wait for it. The first rank submits the next
        # run of a path when the other ranks have ended; a site's WaitTime would end it meanwhile.
        together = ["--kill-on-bad-exit=1", "--wait=0"]
        return [*found, *together] if self.resources.nodes > 1 else found


def load_submitit() -> Any:  # a module, imported by those alone who submit
    """submitit, told which signal to use before it reads that, and how sbatch answers.

    It would take the first job that anything on the way to sbatch speaks of for ours, and makes an
    executor of its own for every array.
    """
    os.environ["SUBMITIT_PREEMPT_SIGNAL"] = WARNING
    from submitit.slurm import slurm

    read = staticmethod(commands.submitted_id)
    slurm.SlurmExecutor._get_job_id_from_submission_command = read  # pyright: ignore[reportAttributeAccessIssue]
    return slurm


def render(parameters: dict[str, Any], folder: Path, n_tasks: int) -> str:
    """The script, byte for byte as submitit will write it; an array if there are several tasks."""
    slurm = load_submitit()
    # What SlurmExecutor does, which refuses to exist on a machine without SLURM.
    command = slurm._shlex_join([*PYTHON, "-u", "-m", "submitit.core._submit", str(folder)])
    count = n_tasks if n_tasks > 1 else None
    return slurm._make_sbatch_string(command=command, folder=folder, map_count=count, **parameters)


def requests(script: str) -> frozenset[str]:
    """What a script asks for on behalf of the user, wherever and beside whatever else it does."""
    lines = (line for line in script.splitlines() if line.startswith("#SBATCH "))
    return frozenset(line for line in lines if not _OURS.match(line))


def _refuse(text: str, key: str, value: str) -> None:
    """SchedulerError for an option that has a key of its own; sbatch knows it by its beginning."""
    if "clusters".startswith(key) and key.startswith("cl"):
        raise SchedulerError(
            f"extra '{text}': vmcjob asks one cluster, the one of this host; submit on a login "
            "host of the other cluster, or set SLURM_CONF to its slurm.conf"
        )
    if key in GPU_OPTIONS or (key.startswith("tres-per-") and "gpu" in value):
        raise SchedulerError(
            f"extra '{text}': GPUs are asked for by resources.gpus or --gres, by so many per node"
        )
    if owned := next((name for name in sorted(OWNED) if name.startswith(key)), None):
        raise SchedulerError(f"extra '{text}': vmcjob sets --{owned} itself")


def _gpus(gres: str) -> int:
    """GPUs in one item of a gres list: name[:type][:count]; of shared ones, one."""
    name, *details = re.split("[:=]", gres.strip().removeprefix("gres/").removeprefix("gres:"))
    count = int(details[-1]) if details and details[-1].isdecimal() else 1
    return {"gpu": count, "shard": min(count, 1), "mps": min(count, 1)}.get(name, 0)


def _number(value: object) -> int:
    """An option of sbatch as a number; 0 if it is not a number."""
    text = str(value)
    return int(text) if text.isdecimal() else 0
