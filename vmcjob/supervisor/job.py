"""The job that a supervisor belongs to: what SLURM says of it, and what is asked of SLURM."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from vmcjob.errors import SchedulerError
from vmcjob.rank import ALONE, Rank, port_of
from vmcjob.slurm_environment import plain

QUERY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Job:
    """Who we are to the batch system."""

    job_id: str  # as people write it: 22 or 22_3
    raw_id: str
    n_restarts: int

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Job":
        """The job that this process belongs to."""
        raw = environ["SLURM_JOB_ID"]
        array, index = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        name = f"{array}_{index}" if array and index else raw
        return cls(name, raw, int(environ.get("SLURM_RESTART_COUNT", "0")))

    @property
    def attempt(self) -> str:
        """This attempt of the job: SLURM may start it several times."""
        return f"{self.raw_id}.{self.n_restarts}"

    def rank(self, environ: Mapping[str, str]) -> Rank:
        """Which of the job's processes this is; they meet on the first one's node."""
        count = int(environ.get("SLURM_STEP_NUM_TASKS", "1"))
        if count == 1:
            return ALONE
        nodes = environ["SLURM_STEP_NODELIST"]
        # The last lines: what a site's wrapper has to say comes first.
        hosts = _ask("scontrol", "show", "hostnames", nodes).splitlines()[-count:]
        if not hosts:
            raise SchedulerError(
                f"scontrol show hostnames {nodes}: no answer; submit the run again"
            )
        coordinator = f"{hosts[0]}:{port_of(self.raw_id)}"
        return Rank(int(environ["SLURM_PROCID"]), count, coordinator)

    def end_time(self) -> float | None:
        """When the wall time ends, in seconds since the epoch; None if it never does."""
        said = _ask("squeue", "--noheader", f"--jobs={self.raw_id}", "--format=%e")
        return next((float(word) for word in said.splitlines() if word.isdigit()), None)

    def is_cancelled(self) -> bool:
        """Whether we are being ended for good: not to be preempted, not to be requeued."""
        words = _ask("scontrol", "--oneliner", "show", "job", self.raw_id).split()
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        is_ending = fields.get("JobState") in ("COMPLETING", "CANCELLED")
        return is_ending and fields.get("Restarts") == str(self.n_restarts)

    def requeue(self) -> bool:
        """Ask for another attempt of this job alone; of an array, no other element."""
        command = ["scontrol", "requeue", self.job_id]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, env=plain(os.environ), check=False)
        return done.returncode == 0


def say(text: str) -> None:
    """Talk, to the batch system's own log of the job."""
    sys.stderr.write(f"vmcjob: {text}\n")
    sys.stderr.flush()


def _ask(*command: str) -> str:
    """What a command of the batch system says; nothing if it fails."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=plain(os.environ),
            timeout=QUERY_TIMEOUT_S,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""
