"""The job that a supervisor belongs to: what SLURM says of it, and what is asked of SLURM."""

import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from vmcjob.errors import SchedulerError
from vmcjob.rank import ALONE, Rank, port_of
from vmcjob.resources import wall_time_s
from vmcjob.slurm_environment import plain

QUERY_TIMEOUT_S = 60.0
ENDING = {
    "COMPLETING", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "DEADLINE",
    "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY",
}  # fmt: skip


class Fate(Enum):
    """What becomes of an attempt of a job."""

    RUNNING = auto()  # nothing, as far as SLURM knows
    PREEMPTED = auto()  # it still runs, in its grace time
    RETURNING = auto()  # SLURM has put the job back into the queue
    CANCELLED = auto()  # somebody has ended it
    LOST = auto()  # it ends, and SLURM does not bring it back by itself


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

    def end_time(self, patience_s: float = QUERY_TIMEOUT_S) -> float | None:
        """When the wall time ends, in seconds since the epoch; infinity if it never does.

        None if nobody says.
        """
        command = ("squeue", "--noheader", f"--jobs={self.raw_id}", "--format=%e")
        said = _ask(*command, patience_s=patience_s)
        return next((float(line) for line in said.splitlines() if line.isdigit()), None) or (
            math.inf if said else None
        )

    def fate(self) -> Fate | None:
        """What SLURM has in mind for this attempt; None if it does not say."""
        done = _start(("scontrol", "--oneliner", "show", "job", self.raw_id), QUERY_TIMEOUT_S)
        if done is None or "Invalid job id" in done.stderr:
            return None if done is None else Fate.LOST
        for line in done.stdout.splitlines():  # of an array, the id may stand for several elements
            fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if fields.get("JobId") == self.raw_id:
                return self._judge(fields)
        return None

    def _judge(self, fields: Mapping[str, str]) -> Fate:
        """The fate that one job's line of scontrol tells of."""
        is_preempted = fields.get("PreemptTime", "")[:1].isdigit()
        if fields.get("Restarts") != str(self.n_restarts):
            return Fate.RETURNING
        if fields.get("JobState") not in ENDING:
            return Fate.PREEMPTED if is_preempted else Fate.RUNNING
        # Whatever ended it, SLURM calls it COMPLETING as long as a process is left.
        return Fate.LOST if is_preempted or _is_over(fields) else Fate.CANCELLED

    def requeue(self) -> bool:
        """Ask for another attempt of this job alone; of an array, no other element."""
        done = _start(("scontrol", "requeue", self.job_id), QUERY_TIMEOUT_S)
        return done is not None and done.returncode == 0


def _is_over(fields: Mapping[str, str]) -> bool:
    """Whether a job's wall time is."""
    if fields.get("JobState") == "TIMEOUT":
        return True
    try:
        return wall_time_s(fields["RunTime"]) >= wall_time_s(fields["TimeLimit"])
    except (KeyError, ValueError):  # no limit
        return False


def say(text: str) -> None:
    """Talk, to the batch system's own log of the job."""
    sys.stderr.write(f"vmcjob: {text}\n")
    sys.stderr.flush()


def submit_script(script: Path, *options: str, index: str = "") -> str | None:
    """Give sbatch a script, of an array one element; the new job's number, None if it refuses."""
    element = [f"--array={index}"] if index else []
    done = _start(("sbatch", "--parsable", *element, *options, str(script)), QUERY_TIMEOUT_S)
    if done is None or done.returncode != 0:
        say(f"sbatch: {done.stderr.strip() if done else 'no answer'}")
        return None
    lines = [line.partition(";")[0] for line in done.stdout.splitlines()]
    return next((line for line in reversed(lines) if line.isdigit()), None)


def _ask(*command: str, patience_s: float = QUERY_TIMEOUT_S) -> str:
    """What a command of the batch system says; nothing if it fails."""
    done = _start(command, patience_s)
    return done.stdout.strip() if done is not None and done.returncode == 0 else ""


def _start(command: Sequence[str], patience_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run a command of the batch system; None if it does not end, or cannot begin."""
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=plain(os.environ),
            timeout=patience_s,
            check=False,
        )
    return None
