"""Ask SLURM about a job from within the job, and ask for requeues."""

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vmcjob.errors import SchedulerError
from vmcjob.protocol.batch import Fate
from vmcjob.protocol.rank import ALONE, Rank, port_of
from vmcjob.resources import wall_time_s
from vmcjob.rundir import RunDir, Submission
from vmcjob.slurm.programs import QUERY_TIMEOUT_S, ask, start
from vmcjob.slurm.resubmit import resubmit

ENDING = {
    "COMPLETING", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "DEADLINE",
    "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY",
}  # fmt: skip
_SHOW_JOB = ("scontrol", "--all", "--oneliner", "show", "job")
_SQUEUE = ("squeue", "--noheader", "--all", "--array", "--states=all")


@dataclass(frozen=True)
class SlurmJob:
    """Who we are to SLURM."""

    job_id: str  # as people write it: 22 or 22_3
    raw_id: str
    n_restarts: int
    began: float = field(default_factory=time.monotonic, compare=False)  # this process of the job

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "SlurmJob":
        """The job that this process belongs to."""
        raw = environ["SLURM_JOB_ID"]
        array, index = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        name = f"{array}_{index}" if array and index else raw
        return cls(name, raw, int(environ.get("SLURM_RESTART_COUNT", "0")))

    @property
    def attempt(self) -> str:
        """This attempt of the job: SLURM may start it several times."""
        return f"{self.raw_id}.{self.n_restarts}"

    def rank(self, environ: Mapping[str, str] = os.environ) -> Rank:
        """Which of the job's processes this is; they meet on the first one's node."""
        count = int(environ.get("SLURM_STEP_NUM_TASKS", "1"))
        if count == 1:
            return ALONE
        nodes = environ["SLURM_STEP_NODELIST"]
        # The last lines: what a site's wrapper has to say comes first.
        hosts = ask("scontrol", "show", "hostnames", nodes).splitlines()[-count:]
        if not hosts:
            raise SchedulerError(
                f"scontrol show hostnames {nodes}: no answer; submit the run again"
            )
        coordinator = f"{hosts[0]}:{port_of(self.raw_id)}"
        return Rank(int(environ["SLURM_PROCID"]), count, coordinator)

    def end_time(self, patience_s: float = QUERY_TIMEOUT_S) -> float | None:
        """When the wall time ends, in seconds since the epoch; infinity if it never does.

        None if nobody says. SLURM tells it by the clock of its controller: where the clock of this
        host is late, the end is still not later than the time limit, counted from our start.
        """
        # Asked for the last element of an array to start, whose id is the array's, squeue tells of
        # all elements.
        told = ask(*_SQUEUE, f"--jobs={self.raw_id}", "--format=%A %e %l", patience_s=patience_s)
        lines = (line.split() for line in told.splitlines())
        own = next((line for line in lines if len(line) > 1 and line[0] == self.raw_id), None)
        if own is None:
            return None
        end, *limit = own[1:]
        age_s = time.monotonic() - self.began
        latest = time.time() + _duration_s(*limit) - age_s
        return min(float(end) if end.isdigit() else math.inf, latest)

    def memory_mb(self, environ: Mapping[str, str] = os.environ) -> int | None:
        """Megabytes of memory per node; None if memory is neither asked for nor limited by node."""
        said = environ.get("SLURM_MEM_PER_NODE", "")
        return int(said) if said.isdecimal() else None

    def fate(self) -> Fate | None:
        """What SLURM has in mind for this attempt; None if it does not say."""
        done = start((*_SHOW_JOB, self.raw_id), QUERY_TIMEOUT_S)
        if done is None or "Invalid job id" in done.stderr:
            return None if done is None else Fate.LOST
        for line in done.stdout.splitlines():  # of an array, the id may stand for several elements
            fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if fields.get("JobId") == self.raw_id:
                return self._judge(fields)
        return None

    def _judge(self, fields: Mapping[str, str]) -> Fate:
        """The fate that one job's line of scontrol tells of."""
        if fields.get("Restarts") != str(self.n_restarts):
            return Fate.RETURNING
        if fields.get("PreemptTime", "")[:1].isdigit():
            return Fate.PREEMPTED
        if fields.get("JobState") not in ENDING:
            return Fate.RUNNING
        # Whatever ended it, SLURM calls it COMPLETING as long as a process is left.
        return Fate.LOST if _is_over(fields) else Fate.CANCELLED

    def requeue(self) -> bool:
        """Ask for another attempt of this job alone; of an array, no other element."""
        done = start(("scontrol", "requeue", self.job_id), QUERY_TIMEOUT_S)
        return done is not None and done.returncode == 0

    def resubmit(self, run: RunDir, submission: Submission, folder: Path) -> bool:
        """Have the run's script done once more, in a job of its own; False if SLURM refuses."""
        return resubmit(run, submission, self.job_id, folder)


def _duration_s(text: str = "UNLIMITED") -> float:
    """Seconds of a time limit as squeue writes it: 30:00, 1:00:00 or 2-00:00:00."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not (days or "0").isdigit() or not all(part.isdigit() for part in parts):
        return math.inf
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(int(days or 0) * 86400 + seconds)


def _is_over(fields: Mapping[str, str]) -> bool:
    """Whether a job's wall time is, or its node has failed it."""
    if fields.get("JobState") in ("TIMEOUT", "NODE_FAIL"):
        return True
    try:
        return wall_time_s(fields["RunTime"]) >= wall_time_s(fields["TimeLimit"])
    except (KeyError, ValueError):  # no limit
        return False
