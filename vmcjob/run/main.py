"""One attempt at one run, from its lock to its outcome and exit code; imports JAX in between."""

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from vmcjob.errors import RunDirError, VmcJobError
from vmcjob.protocol import EXIT_CODES
from vmcjob.protocol.rank import ALONE, Rank
from vmcjob.run import gpus, programs, startup
from vmcjob.run.ending import outcome_of
from vmcjob.run.heartbeat import JOB_BEAT_S, HeartbeatWriter, NoHeartbeat
from vmcjob.run.log import bounded
from vmcjob.run.spent import spent
from vmcjob.run.stop import StopRequest, stop_on_signals
from vmcjob.rundir import RESULTS_LOST, Activity, Heartbeat, Outcome, OutcomeRecord, Process, RunDir
from vmcjob.spec import JobSpec, load_resolved

log = logging.getLogger("vmcjob")
CANCELLED = "CANCELLED"  # stopped half-way by the user
LOCK_PATIENCE_S = 120.0
"""Seconds to wait for the lock of a job, which may come back from a lost node within seconds. File
servers keep the lock of a lost node until its lease ends: NFS for 90 s."""
BOUNDS = ("start", "end", "lost")  # events that begin or end a worker's work


def main(path: Path, rank: Rank = ALONE) -> int:
    """Run the run at `path` from its last commit to its end; returns the exit code.

    With several ranks, this function does not return: see `_leave`. Raises RunDirError, without any
    change, if another worker has the run, if there is no run directory, or if the run has finished
    and lost its results (only the user may start it again).
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)
    run_dir = RunDir.open(path)
    run_dir.refresh()
    if not rank.is_first:
        return _accompany(run_dir, rank)
    submission = run_dir.read_submission()
    is_job = submission is not None and submission.is_job
    with (
        run_dir.lock(LOCK_PATIENCE_S if is_job else 0.0),
        bounded(run_dir.log_of(rank.index)),
        stop_on_signals() as stop,
        HeartbeatWriter(run_dir, JOB_BEAT_S if is_job else 0.0) as heartbeat,
    ):
        last, beat = run_dir.read_outcome(), run_dir.read_heartbeat()
        is_done = last is not None and last.outcome is Outcome.FINISHED
        if is_done and not run_dir.has_results:
            raise RunDirError(f"{path}: finished, but {RESULTS_LOST}")
        outcome = _attempt(run_dir, rank, stop, heartbeat, beat, is_done)
        run_dir.require_presence()  # a directory that somebody removes must not return as a ghost
        if is_done and outcome.outcome in (Outcome.FAILED, Outcome.FINISHED):
            _leave_as_it_was(run_dir, heartbeat, beat)
        else:
            run_dir.write_outcome(outcome)
        word = _word(run_dir, outcome)
        with suppress(RunDirError):  # a full disk: the outcome says so
            run_dir.append_attempt("end", outcome=word, message=outcome.message, **spent())
    log.info("%s", f"{word} {outcome.message}".rstrip())
    code = EXIT_CODES[outcome.outcome]
    if not rank.is_alone:
        _leave(outcome, code)
    return code


def _word(run_dir: RunDir, outcome: OutcomeRecord) -> str:
    """How an attempt ended, in the words of `status`, for history and log."""
    submission = run_dir.read_submission()
    is_cancelled = run_dir.read_cancellation() is not None or (
        submission is not None and submission.cancelled_at is not None
    )
    is_half_way = outcome.outcome is Outcome.PREEMPTED
    return CANCELLED if is_half_way and is_cancelled else outcome.outcome


def _attempt(
    run_dir: RunDir,
    rank: Rank,
    stop: StopRequest,
    heartbeat: HeartbeatWriter,
    beat: Heartbeat | None,
    is_done: bool,
) -> OutcomeRecord:
    """Record the start of an attempt, work, and return how it ended.

    The outcome of a finished run stays, unless there is work left.
    """
    try:
        run_dir.reserve()
        heartbeat.beat(_first_heartbeat(beat))
        if not is_done:
            run_dir.clear_outcome()
        asked = run_dir.read_cancellation()
        if asked and asked.worker != Process.of_pid(os.getpid()):  # it was about an earlier attempt
            run_dir.clear_cancellation()
        _note_silence(run_dir, beat)
        run_dir.append_attempt("start")
    except RunDirError as error:
        return outcome_of(error)
    return _outcome(run_dir, rank, stop, heartbeat)


def _note_silence(run_dir: RunDir, beat: Heartbeat | None) -> None:
    """Record that a silent attempt worked until its last heartbeat.

    Its time was paid for, and the heartbeat will be replaced.
    """
    lines = [line for line in run_dir.read_attempts() if line.get("event") in BOUNDS]
    last = lines[-1] if lines else {}
    if beat is None or last.get("event") != "start":
        return
    who = {"host": beat.host, "pid": beat.pid}
    if {key: last.get(key) for key in who} == who:
        how = {"worker_pid": beat.pid, "how": "without a word"}
        run_dir.append_attempt("lost", time=beat.time, **who, **how)


def _leave_as_it_was(run_dir: RunDir, heartbeat: HeartbeatWriter, beat: Heartbeat | None) -> None:
    """Restore outcome and last heartbeat of a finished run that was refused or found complete."""
    run_dir.release()
    if beat is not None:
        heartbeat.end_with(beat)


def _accompany(run_dir: RunDir, rank: Rank) -> int:
    """Work as another rank: compute, write nothing, and end when rank 0 does.

    The exit code is 0 for any common end of all ranks; rank 0 gives the reason.
    """
    with bounded(run_dir.log_of(rank.index)), stop_on_signals() as stop:
        outcome = _outcome(run_dir, rank, stop, NoHeartbeat(run_dir))
        log.info("%s", f"{outcome.outcome} {outcome.message}".rstrip())
        code = EXIT_CODES[Outcome.FAILED] if outcome.outcome is Outcome.FAILED else 0
        _leave(outcome, code)  # inside, where a late signal still does no harm
    return code


def _leave(outcome: OutcomeRecord, code: int) -> None:
    """End this process: with the other ranks, or at once if they cannot know of its failure.

    The other ranks then wait for this one, and notice its absence.
    """
    from vmcjob.vmc import ranks

    if outcome.outcome is not Outcome.FAILED:
        try:
            ranks.leave()
        except Exception as error:  # all that counts is written, and the exit code is to say so
            log.warning("the other ranks did not end in time: %s", error)
    logging.shutdown()
    os._exit(code)


def _first_heartbeat(last: Heartbeat | None) -> Heartbeat:
    """A heartbeat "starting", at the last known position, until the store is open."""
    if last is None or last.phase is Activity.WARMUP:  # which is not committed, and begins anew
        return Heartbeat(phase=Activity.STARTING, step=0, n_steps=0)
    return Heartbeat(
        phase=Activity.STARTING,
        step=last.step,
        n_steps=last.n_steps,
        energy=last.energy,
        error=last.error,
        acceptance=last.acceptance,
    )


def _spec_at(run_dir: RunDir) -> JobSpec | None:
    """The run's spec; None if it is unreadable, which the attempt will report."""
    with suppress(VmcJobError):
        return load_resolved(run_dir.read_spec_text(), str(run_dir.spec_path))
    return None


def _outcome(
    run_dir: RunDir, rank: Rank, stop: StopRequest, heartbeat: HeartbeatWriter
) -> OutcomeRecord:
    """Work until the run ends; return its outcome."""
    try:
        # Not before the signal handlers are in place: it takes seconds.
        programs.keep_programs()
        startup.import_jax(_spec_at(run_dir))
        from vmcjob.run.attempt import attempt, join

        join(rank)
        gpus.watch(startup.find_devices())
        message = attempt(run_dir, stop, heartbeat)
    except Exception as error:
        return outcome_of(error, is_alone=rank.is_alone)
    return OutcomeRecord(outcome=Outcome.FINISHED, message=message)
