"""On the compute host: starts one run's worker, passes one signal on, ends it in time, requeues.

The batch system starts a `Supervisor` in the Python that submitted it. The worker is another
process, in this Python or in a container; it is spoken to by one signal and answers by its exit
code, its outcome and its log. On several nodes there is a supervisor with a worker on each; the
first one keeps the run's records and talks to the batch system.
"""

import os
import subprocess
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vmcjob.apptainer.container import (
    Image,
    environment,
    host_environment,
    make_cache,
    without_cache,
)
from vmcjob.errors import ContainerError, RunDirError, SchedulerError, VmcJobError
from vmcjob.protocol import (
    BUDGET,
    CANCEL,
    DEADLINE,
    EXIT_CODES,
    SUPERVISED,
    as_signal,
    how_it_ended,
)
from vmcjob.protocol.batch import BatchContext, say
from vmcjob.protocol.rank import ALONE, Rank
from vmcjob.resources import DEFAULT_RETRIES, Retries
from vmcjob.rundir import RESULTS, Outcome, OutcomeRecord, Process, RunDir, Submission
from vmcjob.runs.budget import BudgetWatch, group_of, why_not_begun
from vmcjob.runs.notification import notify_job
from vmcjob.slurm import SlurmJob
from vmcjob.supervisor.endings import Attempt, conclude, note_loss, progress
from vmcjob.supervisor.memory import HostMemory
from vmcjob.supervisor.retries import cause_of_silence, has_given_up, try_again
from vmcjob.supervisor.sequel import EndOfJob, has_finished, run_sequel
from vmcjob.supervisor.share import Share
from vmcjob.supervisor.watch import Deadline, Inbox, Recall, listen, watch
from vmcjob.supervisor.words import size_of

BLOCKED = 1
"""Exit code of a job that began in vain: those that wait for it must not begin."""
LOOK_S = 2.0  # seconds between two checks for a file that another host writes
START_PATIENCE_S = 600.0  # of ranks, for the copy that the first one makes


@dataclass(frozen=True)
class Supervisor:
    """What is pickled for one run: plain strings and numbers, that any Python reads back."""

    run_dir: str
    job_name: str
    command: tuple[str, ...]  # starts the worker
    spare_s: float  # the worker is asked to stop this long before the end of the wall time
    image: str | None = None  # what the command runs in
    image_sha256: str = ""
    has_gpus: bool = False
    cache: str | None = None  # of programs compiled in images
    folder: str | None = None  # from where it is submitted again when SLURM does not requeue it
    share: Share | None = None  # of a job that it has together with other runs
    notify: str | None = None  # a command that is told of the run's end
    retries: Retries = DEFAULT_RETRIES
    memory: HostMemory | None = None  # where a new job may ask for more
    sequel: tuple[str, ...] = ()  # a command to run when the run has finished

    def __call__(self) -> None:
        """What submitit calls in a job of SLURM: the process ends with the worker's exit code."""
        job = SlurmJob.from_environment(os.environ)
        with listen() as inbox:  # before anybody is asked anything, for that takes its time
            try:
                code = self.supervise(job, job.rank(), inbox)
            except SchedulerError as error:
                say(str(error))
                code = error.exit_code
        if code:
            raise SystemExit(code)

    def supervise(self, job: BatchContext, rank: Rank = ALONE, inbox: Inbox | None = None) -> int:
        """One attempt of one rank; the exit code that the batch system shall see.

        With an `inbox`, somebody else listens to the batch system's signals.
        """
        with listen() if inbox is None else nullcontext(inbox) as inbox:
            return self._supervise(job, rank, inbox)

    def _supervise(self, job: BatchContext, rank: Rank, inbox: Inbox) -> int:
        """One attempt of one rank, while signals are listened to; until the last word is written.

        They would end us in the middle.
        """
        run = RunDir(Path(self.run_dir))
        run.refresh()  # an earlier attempt on this host may have read an earlier submission
        submission = run.read_submission()
        if (code := self._why_not_begun(run, submission)) is not None or submission is None:
            return code or 0
        if has_finished(run, submission):
            if rank.is_first:
                run_sequel(run, self.sequel, EndOfJob(job, self.spare_s, inbox))
            return 0
        if not rank.is_first:
            return self._accompany(run, rank, job, inbox, submission)
        if (ended := self._why_not(run, submission)) is not None:
            return self._leave(run, submission, job, ended)
        before = progress(run)
        deadline = Deadline(job, self.spare_s)
        limits = {DEADLINE: deadline, BUDGET: BudgetWatch(run), CANCEL: Recall(run)}
        try:
            run.take_start()
            cache = self._prepare(run, rank)
            run.clear_outcome()
            log_begin = size_of(run.log_path)
            worker = self._start(run, rank, cache)
            _record_start(run, submission, job, worker)
        except VmcJobError as error:
            _note_failure(run, submission, job, error)
            notify_job(run, self.notify)
            return error.exit_code
        watch(worker, inbox, limits, partial(_note_stop, run, worker))
        after = progress(run)
        has_moved = after is not None and after != before
        ended = run, job, worker.pid, worker.returncode, inbox.first, has_moved
        how = self.image is not None, self.notify, self.retries, rank.count
        attempt = Attempt(*ended, *how, self.memory, self.has_gpus, log_begin)
        code = conclude(attempt, self.folder)
        run_sequel(run, self.sequel, EndOfJob(job, self.spare_s, inbox))
        return code

    def _why_not_begun(self, run: RunDir, submission: Submission | None) -> int | None:
        """The exit code of a job that has nothing to do, and says why; None if it has."""
        if submission is None or submission.job_name != self.job_name:
            say("the run has been submitted anew since; nothing to do here")
            return 0
        if submission.cancelled_at is not None:
            say("the run has been cancelled; nothing to do here")
            return 0
        has_begun = submission.started_at is not None or run.start_path.exists()
        for run_id in submission.waits_for or ():
            run.beside(run_id).refresh()
        if not has_begun and (waits := run.open_waits):
            # SLURM 22.05 starts a job when the one that it waits for was cancelled before its turn.
            say(f"{', '.join(waits)} has not finished; the run that waits for it is blocked")
            return BLOCKED
        return None

    def _why_not(self, run: RunDir, submission: Submission) -> OutcomeRecord | None:
        """How a run ends that may not be tried again; None if it may."""
        history, group = run.read_attempts(), group_of(run)
        if has_given_up(history, submission):
            return run.read_outcome()
        if group is not None and (reason := why_not_begun(run, group)):
            return OutcomeRecord(outcome=Outcome.EXHAUSTED, message=reason)
        cause = cause_of_silence(history, submission)
        return None if cause is None else try_again(run, submission, cause, self.retries)

    def _leave(
        self, run: RunDir, submission: Submission, job: BatchContext, ended: OutcomeRecord
    ) -> int:
        """Do nothing for a run that may not go on, and say why."""
        say(ended.message)
        run.write_outcome(ended)
        _record_start(run, submission, job, None)
        notify_job(run, self.notify)
        return EXIT_CODES[ended.outcome]

    def _accompany(
        self, run: RunDir, rank: Rank, job: BatchContext, inbox: Inbox, submission: Submission
    ) -> int:
        """One attempt of a rank beside the first: its worker ends well whenever all end together.

        Any other end takes the job down, for the others would wait for this rank.
        """
        try:
            _wait_for_start(run, submission)
            worker = self._start(run, rank, self._prepare(run, rank))
        except VmcJobError as error:
            say(str(error))
            note_loss(run, rank, job, str(error))
            return error.exit_code
        watch(worker, inbox, {}, lambda reason: None)
        code = as_signal(worker.returncode)
        if code:
            note_loss(run, rank, job, how_it_ended(code), worker.pid)
        return abs(code)

    def _prepare(self, run: RunDir, rank: Rank) -> Path | None:
        """Write what is seen inside of the image; the folder of its compiled programs, if any.

        ContainerError if the image is not the one that was submitted.
        """
        if self.image is None:
            return None
        Image(Path(self.image)).require_unchanged(self.image_sha256)
        cache = self._make_cache()
        environ = self._environ() | {SUPERVISED: "1"}
        text = environment(environ, self.image_sha256, has_gpus=self.has_gpus, cache=cache)
        run.write_environment(text, rank.index)
        return cache

    def _make_cache(self) -> Path | None:
        """The folder of compiled programs; None without a safe one: the run only starts later."""
        try:
            return make_cache(Path(self.cache), self.image_sha256) if self.cache else None
        except ContainerError as error:
            say(f"compiled programs are not kept: {error}")
            return None

    def _environ(self) -> dict[str, str]:
        """What the worker may see of the environment, and of the node's devices."""
        return self.share.environ(os.environ) if self.share else dict(os.environ)

    def _start(self, run: RunDir, rank: Rank, cache: Path | None) -> subprocess.Popen[bytes]:
        """Start the worker, its words going to the run's log."""
        environ = self._environ()
        if self.image is not None:
            environ = host_environment(environ)
        ours, first = str(run.environment_path_of(rank.index)), str(run.environment_path)
        command = [ours if word == first else word for word in self.command]
        if self.cache and cache is None:
            command = without_cache(command, Path(self.cache))
        try:
            with open(run.log_path_of(rank.index), "ab") as log:
                return subprocess.Popen(
                    [*command, *rank.options()],
                    stdin=subprocess.PIPE,  # which ends with us: that it does not outlive us
                    stdout=log,
                    stderr=log,
                    env={**environ, SUPERVISED: "1"},
                )
        except OSError as error:
            raise ContainerError(_why_not_started(command[0], error)) from None


def _wait_for_start(run: RunDir, submission: Submission) -> None:
    """Let the first rank copy what all ranks begin with; RunDirError if it does not."""
    is_wanted = RESULTS in (submission.waits_for or {}).values()
    patience = time.monotonic() + START_PATIENCE_S
    while is_wanted and not run.start_path.exists():
        if time.monotonic() > patience:
            raise RunDirError(f"{run.start_path}: was not copied in {START_PATIENCE_S:g} s")
        time.sleep(LOOK_S)
        run.refresh()


def _why_not_started(program: str, error: OSError) -> str:
    """What is wrong with a program, and on which node; Apptainer is often a module of the site."""
    words = f"{program}: {error.strerror} on {Process.of_pid(os.getpid()).host}"
    if not isinstance(error, FileNotFoundError) or os.sep in program:
        return words
    return f"{words}; [slurm] setup in the site profile has to put it on PATH there"


def _note_failure(
    run: RunDir, submission: Submission, job: BatchContext, error: VmcJobError
) -> None:
    """Say why there is no worker: to the run, to its log, and that its job did start."""
    say(str(error))
    run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=str(error)))
    with suppress(OSError, RunDirError), open(run.log_path, "a", encoding="utf-8") as log:
        log.write(f"vmcjob: the worker was not started: {error}\n")
    _record_start(run, submission, job, None)


def _record_start(
    run: RunDir, submission: Submission, job: BatchContext, worker: subprocess.Popen[bytes] | None
) -> None:
    """Say that the job has started, and who works on the run."""
    latest = run.read_submission()
    if latest is not None and latest.job_name == submission.job_name:
        submission = latest  # it may have been cancelled while the image was being checked
    ours = Process.of_pid(os.getpid())
    theirs = None if worker is None else Process.of_pid(worker.pid)
    run.write_submission(
        replace(
            submission,
            job_id=job.job_id,
            host=ours.host,
            pid=ours.pid,
            process_start=ours.start,
            worker_pid=theirs.pid if theirs else None,
            worker_start=theirs.start if theirs else None,
            started_at=time.time(),
        )
    )


def _note_stop(run: RunDir, worker: subprocess.Popen[bytes], reason: str) -> None:
    """Say that the worker is asked to stop; a full disk may forbid it."""
    with suppress(RunDirError):
        run.append_attempt("stop", worker_pid=worker.pid, how=reason)
