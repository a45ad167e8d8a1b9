"""Several runs that have a job together, on one node: each with a supervisor, one for the job.

Small systems leave most of a big GPU idle, and many sites give whole GPUs or whole nodes only. What
happens to the job happens to all of its runs at once: warnings, deadlines, requeues. What happens
to one run is its own affair: it fails, is cancelled or finishes while the others go on.
"""

import os
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmcjob.errors import VmcJobError
from vmcjob.protocol import CANCEL, EXIT_CODES
from vmcjob.rank import ALONE, Rank
from vmcjob.rundir import Outcome, RunDir, Submission
from vmcjob.supervisor.contract import BatchContext, Fate, say
from vmcjob.supervisor.main import Supervisor
from vmcjob.supervisor.slurm import SlurmJob
from vmcjob.supervisor.watch import Inbox, listen

JOIN_S = 0.2  # how soon a signal is passed on
LOOK_S = 2.0  # between two looks at who has been cancelled


@dataclass(frozen=True)
class Pack:
    """What is pickled for a job of several runs."""

    supervisors: tuple[Supervisor, ...]

    def __call__(self) -> None:
        """What submitit calls in a job of SLURM: it ends with the gravest of the exit codes."""
        if code := self.supervise(SlurmJob.from_environment(os.environ)):
            raise SystemExit(code)

    def supervise(self, job: BatchContext) -> int:
        """One attempt of the job; the exit code that the batch system shall see."""
        with listen() as inbox:
            members = [_Member(s) for s in self.supervisors if not _is_settled(s)]
            shared = SharedJob(job, _Together(len(members)))
            for member in members:
                member.start(shared)
            _look_after(members, inbox)
        return max((member.code for member in members), default=0)


class _Together:
    """Runs of one job, of which the last to end asks for the next attempt of all."""

    def __init__(self, count: int) -> None:
        self._n_at_work = count
        self._has_changed = threading.Condition()
        self._is_requeued = False

    def leave(self) -> None:
        """One run has nobody at work any more."""
        with self._has_changed:
            self._n_at_work -= 1
            self._has_changed.notify_all()

    def requeue(self, job: BatchContext) -> bool:
        """Once the others have ended too: a requeue takes the job away from all of them."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: self._n_at_work <= 0)
            self._is_requeued = self._is_requeued or job.requeue()
            return self._is_requeued


@dataclass(frozen=True)
class SharedJob:
    """The job as one of its runs sees it."""

    job: BatchContext
    together: _Together

    @property
    def job_id(self) -> str:
        """That of all."""
        return self.job.job_id

    @property
    def attempt(self) -> str:
        """That of all."""
        return self.job.attempt

    def rank(self) -> Rank:
        """Jobs that are shared have one node."""
        return ALONE

    def end_time(self, patience_s: float) -> float | None:
        """That of all."""
        return self.job.end_time(patience_s)

    def fate(self) -> Fate | None:
        """That of all."""
        return self.job.fate()

    def requeue(self) -> bool:
        """Ask for another attempt when nobody is at work, and only once."""
        _leave_once(self.together)
        return self.together.requeue(self.job)

    def resubmit(self, run: RunDir, submission: Submission, folder: Path) -> bool:
        """Not by itself: its job is not its own."""
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
        """Begin to supervise it."""
        name = self.run.path.name
        self._thread = threading.Thread(target=self._supervise, args=(job,), name=name)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; whether that has come."""
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
    """Until all have ended, pass on what SLURM says to all, and to each that it is cancelled."""
    at_work, looks = list(members), 0
    while at_work:
        at_work = [member for member in at_work if not member.join(JOIN_S / len(at_work))]
        looks += 1
        for member in at_work:
            if inbox.first:
                member.inbox.put(inbox.first)
            elif looks % round(LOOK_S / JOIN_S) == 0 and _is_cancelled(member.run):
                member.inbox.put(CANCEL)


def _is_cancelled(run: RunDir) -> bool:
    submission = run.read_submission()
    return submission is not None and submission.cancelled_at is not None


def _is_settled(supervisor: Supervisor) -> bool:
    """Whether its run has come to an end in an earlier attempt of the job, which others repeat."""
    run = RunDir(Path(supervisor.run_dir))
    submission, outcome = run.read_submission(), run.read_outcome()
    if submission is None or outcome is None or outcome.outcome is Outcome.PREEMPTED:
        return False
    return submission.job_name == supervisor.job_name and submission.has_come_to(outcome)
