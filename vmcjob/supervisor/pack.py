"""Several runs that share a job on one node: a supervisor for each run, within one job.

Small systems leave most of a big GPU idle, and many sites only allocate whole GPUs or nodes.
Warnings, deadlines and requeues of the job concern all its runs. A run fails, is cancelled or
finishes alone, while the others continue.
"""

import os
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmcjob.errors import VmcJobError
from vmcjob.protocol import EXIT_CODES
from vmcjob.protocol.batch import BatchContext, Fate, say
from vmcjob.protocol.rank import ALONE, Rank
from vmcjob.rundir import Outcome, RunDir, Submission
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor.main import Supervisor
from vmcjob.supervisor.watch import Inbox, listen

JOIN_S = 0.2  # seconds until a signal is passed on


@dataclass(frozen=True)
class Pack:
    """The pickled content of a job with several runs."""

    supervisors: tuple[Supervisor, ...]

    def __call__(self) -> None:
        """Called by submitit in a job of SLURM; ends with the worst of the exit codes."""
        if code := self.supervise(SlurmJob.from_environment(os.environ)):
            raise SystemExit(code)

    def supervise(self, job: BatchContext) -> int:
        """One attempt of the job; returns the exit code for the batch system."""
        with listen() as inbox:
            members = [_Member(s) for s in self.supervisors if not _is_settled(s)]
            shared = SharedJob(job, _Together(len(members)))
            for member in members:
                member.start(shared)
            _look_after(members, inbox)
        return max((member.code for member in members), default=0)


class _Together:
    """The runs of one job; the last run to end asks for the next attempt of all."""

    def __init__(self, count: int) -> None:
        self._n_at_work = count
        self._has_changed = threading.Condition()
        self._is_requeued = False

    def leave(self) -> None:
        """Count a run that has ended."""
        with self._has_changed:
            self._n_at_work -= 1
            self._has_changed.notify_all()

    def requeue(self, job: BatchContext) -> bool:
        """Requeue the job after the other runs have ended, because a requeue ends all of them."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: self._n_at_work <= 0)
            self._is_requeued = self._is_requeued or job.requeue()
            return self._is_requeued


@dataclass(frozen=True)
class SharedJob:
    """The job from the view of one of its runs."""

    job: BatchContext
    together: _Together

    @property
    def job_id(self) -> str:
        """The id of the shared job."""
        return self.job.job_id

    @property
    def attempt(self) -> str:
        """The attempt of the shared job."""
        return self.job.attempt

    def rank(self) -> Rank:
        """A shared job has one node, so one rank."""
        return ALONE

    def end_time(self, patience_s: float) -> float | None:
        """The end of the shared job's time."""
        return self.job.end_time(patience_s)

    def memory_mb(self) -> int | None:
        """The memory of the shared job."""
        return self.job.memory_mb()

    def fate(self) -> Fate | None:
        """The fate of the shared job."""
        return self.job.fate()

    def requeue(self) -> bool:
        """Ask for another attempt once, when all runs have ended."""
        _leave_once(self.together)
        return self.together.requeue(self.job)

    def resubmit(self, run: RunDir, submission: Submission, folder: Path) -> bool:
        """Never: a single run cannot submit the shared job again."""
        del run, submission, folder
        return False


_left = threading.local()


def _leave_once(together: _Together) -> None:
    """Leave, unless this thread has done so before."""
    if getattr(_left, "together", None) is not together:
        _left.together = together
        together.leave()


class _Member:
    """One of the runs, with the thread that supervises it."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.run = RunDir(Path(supervisor.run_dir))
        self.inbox = Inbox()
        self.code = 0
        self._supervisor = supervisor
        self._thread: threading.Thread | None = None

    def start(self, job: SharedJob) -> None:
        """Start the thread that supervises the run."""
        name = self.run.path.name
        self._thread = threading.Thread(target=self._supervise, args=(job,), name=name)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _supervise(self, job: SharedJob) -> None:
        try:
            if share := self._supervisor.share:
                share.take_cpus()
            self.code = self._supervisor.supervise(job, inbox=self.inbox)
        except VmcJobError as error:  # as on a full disk: it must not end the others
            say(f"{self.run.path.name}: {error}")
            self.code = error.exit_code
        except Exception:  # a bug must not either
            say(f"{self.run.path.name}: {traceback.format_exc()}")
            self.code = EXIT_CODES[Outcome.FAILED]
        finally:
            _leave_once(job.together)


def _look_after(members: Sequence[_Member], inbox: Inbox) -> None:
    """Until all runs have ended, pass SLURM's signals on to all."""
    at_work = list(members)
    while at_work:
        at_work = [member for member in at_work if not member.join(JOIN_S / len(at_work))]
        for member in at_work:
            if inbox.first:
                member.inbox.put(inbox.first)


def _is_settled(supervisor: Supervisor) -> bool:
    """Whether the run has ended for good in an earlier attempt of the job."""
    run = RunDir(Path(supervisor.run_dir))
    submission, outcome = run.read_submission(), run.read_outcome()
    if submission is None or outcome is None or outcome.outcome is Outcome.PREEMPTED:
        return False
    return submission.job_name == supervisor.job_name and submission.has_come_to(outcome)
