"""On the compute host: starts one run's worker, passes one signal on, ends it in time, requeues.

The batch system starts a `Supervisor` in the Python that submitted it. The worker is another
process, in this Python or in a container; it is spoken to by one signal and answers by its exit
code, its outcome and its log. On several nodes there is a supervisor with a worker on each; the
first one keeps the run's records and talks to the batch system.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

from vmcjob.container import Image, environment, make_cache
from vmcjob.errors import ContainerError, RunDirError, SchedulerError, VmcJobError
from vmcjob.rank import ALONE, Rank, port_of
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Phase, Process, RunDir, Submission

STOPPED = 75  # the worker's exit code after it has stopped at a checkpoint
STOP_SIGNAL = signal.SIGUSR2
POLL_S = 0.2  # how soon an ended worker is noticed
QUERY_TIMEOUT_S = 60.0
WARNING = signal.SIGURG  # before a preemption: the one signal that harms no process by itself


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
        hosts = _ask("scontrol", "show", "hostnames", nodes).splitlines()
        if not hosts:
            raise SchedulerError(
                f"scontrol show hostnames {nodes}: no answer; submit the run again"
            )
        coordinator = f"{hosts[0]}:{port_of(self.raw_id)}"
        return Rank(int(environ["SLURM_PROCID"]), count, coordinator)

    def end_time(self) -> float | None:
        """When the wall time ends, in seconds since the epoch; None if it never does."""
        with suppress(ValueError):
            return float(_ask("squeue", "--noheader", f"--jobs={self.raw_id}", "--format=%e"))
        return None

    def is_cancelled(self) -> bool:
        """Whether we are being ended for good: not to be preempted, not to be requeued."""
        words = _ask("scontrol", "--oneliner", "show", "job", self.raw_id).split()
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        is_ending = fields.get("JobState") in ("COMPLETING", "CANCELLED")
        return is_ending and fields.get("Restarts") == str(self.n_restarts)

    def requeue(self) -> bool:
        """Ask for another attempt of this job alone; of an array, no other element."""
        command = ["scontrol", "requeue", self.job_id]
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0


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

    def __call__(self) -> None:
        """Take one attempt to its end; the process ends with the worker's exit code."""
        job = Job.from_environment(os.environ)
        try:
            code = self.supervise(job, job.rank(os.environ))
        except SchedulerError as error:
            _say(str(error))
            code = error.exit_code
        if code:
            raise SystemExit(code)

    def supervise(self, job: Job, rank: Rank = ALONE) -> int:
        """One attempt of one rank; the exit code that the batch system shall see."""
        run = RunDir(Path(self.run_dir))
        submission = run.read_submission()
        if submission is None or submission.job_name != self.job_name:
            _say("the run has been submitted anew since; nothing to do here")
            return 0
        if submission.cancelled_at is not None:
            _say("the run has been cancelled; nothing to do here")
            return 0
        if not rank.is_first:
            return self._accompany(run, rank, job)
        before = _progress(run)
        end = job.end_time()
        with listen() as inbox:
            try:
                self._prepare(run, rank)
                run.clear_outcome()
                worker = self._start(run, rank)
                _record_start(run, submission, job, worker)
            except VmcJobError as error:
                _say(str(error))
                run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=str(error)))
                return error.exit_code
            deadline = None if end is None else end - self.spare_s
            _watch(worker, inbox, deadline, partial(_note_stop, run, worker))
        after = _progress(run)
        has_moved = after is not None and after != before
        return _conclude(run, worker, job, inbox.first, has_moved=has_moved)

    def _accompany(self, run: RunDir, rank: Rank, job: Job) -> int:
        """One attempt of a rank beside the first: its worker ends well whenever all end together.

        Any other end takes the job down, for the others would wait for this rank.
        """
        with listen() as inbox:
            try:
                self._prepare(run, rank)
                worker = self._start(run, rank)
            except VmcJobError as error:
                _say(str(error))
                _note_loss(run, rank, job, str(error))
                return error.exit_code
            _watch(worker, inbox, None, lambda reason: None)
        code = _as_signal(worker.returncode)
        if code:
            _note_loss(run, rank, job, _how(code), worker.pid)
        return abs(code)

    def _prepare(self, run: RunDir, rank: Rank) -> None:
        """See that the image is the one that was submitted, and say what is seen inside of it."""
        if self.image is None:
            return
        Image(Path(self.image), self.image_sha256).digest()
        cache = make_cache(Path(self.cache), self.image_sha256) if self.cache else None
        text = environment(os.environ, self.image_sha256, has_gpus=self.has_gpus, cache=cache)
        run.write_environment(text, rank.index)

    def _start(self, run: RunDir, rank: Rank) -> subprocess.Popen[bytes]:
        """Start the worker, its words going to the run's log."""
        ours, first = str(run.environment_path_of(rank.index)), str(run.environment_path)
        command = [ours if word == first else word for word in self.command]
        try:
            with open(run.log_path_of(rank.index), "ab") as log:
                return subprocess.Popen(
                    [*command, *rank.options()], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        except OSError as error:
            raise ContainerError(f"{command[0]}: {error.strerror}") from None


class Inbox:
    """The first reason to stop that came."""

    def __init__(self) -> None:
        self.first: str | None = None

    def put(self, reason: str) -> None:
        """Note a reason; those that follow change nothing."""
        self.first = self.first or reason


@contextmanager
def listen() -> Iterator[Inbox]:
    """While inside, the batch system's signals are noted and do nothing else.

    They replace submitit's handlers, which would pickle us anew and requeue on their own account.
    """
    inbox = Inbox()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        inbox.put(signal.Signals(number).name)

    def ignore(number: int, frame: FrameType | None) -> None:
        del number, frame  # unlike SIG_IGN, a handler is not inherited by the worker

    numbers = (WARNING, signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, note) for number in numbers}
    for number in (signal.SIGCONT, STOP_SIGNAL):
        previous[number] = signal.signal(number, ignore)
    try:
        yield inbox
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _record_start(
    run: RunDir, submission: Submission, job: Job, worker: subprocess.Popen[bytes]
) -> None:
    """Say who works on the run."""
    ours, theirs = Process.of_pid(os.getpid()), Process.of_pid(worker.pid)
    run.write_submission(
        replace(
            submission,
            job_id=job.job_id,
            host=ours.host,
            pid=ours.pid,
            process_start=ours.start,
            worker_pid=theirs.pid,
            worker_start=theirs.start,
            started_at=time.time(),
        )
    )


def _note_loss(run: RunDir, rank: Rank, job: Job, how: str, pid: int | None = None) -> None:
    """Say that a rank beside the first has ended before the others; a full disk may forbid it."""
    with suppress(RunDirError):
        run.append_attempt("lost", rank=rank.index, job=job.attempt, worker_pid=pid, how=how)


def _lost_rank(run: RunDir, job: Job) -> str | None:
    """Why this attempt lost a rank, if it did: the others are ended for it, without a fault."""
    for line in run.read_attempts():
        if line.get("event") == "lost" and line.get("job") == job.attempt:
            return f"rank {line.get('rank')} was lost: {line.get('how')}"
    return None


def note_end(run: RunDir, pid: int, code: int) -> None:
    """Say for a worker that could not say it itself how it ended.

    One that ended by itself has failed; one that was killed is dead, and goes without an outcome.
    """
    how = _how(code)
    # A full disk or a removed run must not take us down; a run that somebody else has locked
    # meanwhile is theirs.
    with suppress(OSError, RunDirError), run.lock():
        submission = run.read_submission()
        if submission is None or submission.worker_pid != pid or run.read_outcome() is not None:
            return  # it said so itself, or the run has begun anew since and is not about it
        run.append_attempt("lost", worker_pid=pid, how=how)
        with open(run.log_path, "a", encoding="utf-8") as log:
            log.write(f"vmcjob: the worker (pid {pid}) ended by {how} without an outcome\n")
        if code >= 0:
            message = f"the worker ended by {how}; its log says more"
            run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=message))


def _note_stop(run: RunDir, worker: subprocess.Popen[bytes], reason: str) -> None:
    """Say that the worker is asked to stop; a full disk may forbid it."""
    with suppress(RunDirError):
        run.append_attempt("stop", worker_pid=worker.pid, how=reason)


def _watch(
    worker: subprocess.Popen[bytes],
    inbox: Inbox,
    deadline: float | None,
    note: Callable[[str], None],
) -> None:
    """Wait for the worker's end; note the first reason to stop and pass it on, once."""
    is_told = False
    while worker.poll() is None:
        if deadline is not None and time.time() >= deadline:
            inbox.put("deadline")
        if inbox.first and not is_told:
            _say(f"{inbox.first}: asking the worker to stop at its next checkpoint")
            note(inbox.first)
            worker.send_signal(STOP_SIGNAL)
            is_told = True
        with suppress(subprocess.TimeoutExpired):
            worker.wait(POLL_S)


def _conclude(
    run: RunDir, worker: subprocess.Popen[bytes], job: Job, reason: str | None, *, has_moved: bool
) -> int:
    """Record how the attempt ended and ask for the next one where there has to be one."""
    code, outcome = _as_signal(worker.returncode), run.read_outcome()
    if code < 0 and outcome is not None:  # a signal that came after its last word
        code = {Outcome.FINISHED: 0, Outcome.PREEMPTED: STOPPED}.get(outcome.outcome, code)
    if code < 0 and outcome is None and (why := _lost_rank(run, job)):
        run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=why))
    elif reason and code in (-STOP_SIGNAL, -signal.SIGTERM) and outcome is None:
        words = f"stopped by {reason} before it began; continues where it stopped"
        run.write_outcome(OutcomeRecord(outcome=Outcome.PREEMPTED, message=words))
        code = STOPPED
    if code != STOPPED:
        note_end(run, worker.pid, code)
        return abs(code)
    submission = run.read_submission()
    if submission is None or submission.cancelled_at is not None:
        return STOPPED
    if reason == signal.SIGTERM.name and job.is_cancelled():
        run.write_submission(replace(submission, cancelled_at=time.time()))
        return STOPPED
    if reason == "deadline" and not has_moved:
        words = "the wall time ended before a single step was done; ask for more (-t)"
        run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=words))
        return 1
    # After SIGTERM the batch system itself decides whether there is another attempt.
    if reason in ("deadline", WARNING.name) and not job.requeue():
        _say("SLURM did not requeue the job; submitting the run again continues it")
    return STOPPED


def _how(code: int) -> str:
    """An exit code as Popen has it, in words."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _as_signal(code: int) -> int:
    """An exit code as Popen has it; a container reports death by signal n as 128 + n."""
    return 128 - code if 128 < code < 128 + signal.NSIG else code


def _progress(run: RunDir) -> tuple[Phase, int] | None:
    """What has been committed, as far as the heartbeat tells; warm-up never is."""
    beat: Heartbeat | None = run.read_heartbeat()
    if beat is None or beat.phase in (Phase.STARTING, Phase.WARMUP):
        return None
    return beat.phase, beat.step


def _ask(*command: str) -> str:
    """What a command of the batch system says; nothing if it fails."""
    environ = os.environ | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environ,
            timeout=QUERY_TIMEOUT_S,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def _say(text: str) -> None:
    """Talk, to the batch system's own log of the job."""
    sys.stderr.write(f"vmcjob: {text}\n")
    sys.stderr.flush()
