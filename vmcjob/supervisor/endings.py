"""How an attempt ended: what is recorded of it, and whether there is to be another one."""

import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace

from vmcjob.errors import RunDirError
from vmcjob.rank import Rank
from vmcjob.rundir import Heartbeat, Outcome, OutcomeRecord, Phase, RunDir
from vmcjob.supervisor.job import Job, say
from vmcjob.supervisor.watch import STOP_SIGNAL, WARNING

STOPPED = 75  # the worker's exit code after it has stopped at a checkpoint


def note_loss(run: RunDir, rank: Rank, job: Job, how: str, pid: int | None = None) -> None:
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
    how = how_it_ended(code)
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


def conclude(
    run: RunDir, worker: subprocess.Popen[bytes], job: Job, reason: str | None, *, has_moved: bool
) -> int:
    """Record how the attempt ended and ask for the next one where there has to be one."""
    code, outcome = as_signal(worker.returncode), run.read_outcome()
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
        say("SLURM did not requeue the job; submitting the run again continues it")
    return STOPPED


def how_it_ended(code: int) -> str:
    """An exit code as Popen has it, in words."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def as_signal(code: int) -> int:
    """An exit code as Popen has it; a container reports death by signal n as 128 + n."""
    return 128 - code if 128 < code < 128 + signal.NSIG else code


def progress(run: RunDir) -> tuple[Phase, int] | None:
    """What has been committed, as far as the heartbeat tells; warm-up never is."""
    beat: Heartbeat | None = run.read_heartbeat()
    if beat is None or beat.phase in (Phase.STARTING, Phase.WARMUP):
        return None
    return beat.phase, beat.step
