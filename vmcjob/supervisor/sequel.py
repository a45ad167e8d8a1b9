"""The sequel of a finished run: a command that its job runs at last, to submit the next run."""

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from vmcjob.errors import RunDirError
from vmcjob.protocol import how_it_ended
from vmcjob.protocol.batch import BatchContext, say
from vmcjob.rundir import Outcome, RunDir, Sequel, Submission
from vmcjob.supervisor.watch import Deadline, Inbox, Limit
from vmcjob.supervisor.words import last_words, size_of

POLL_S = 0.2  # how soon the end of the command is noticed
SPARE_SHARE = 0.5
"""The share of a worker's spare time that a submission has when the wall time is nearly over."""
TOO_LATE = "its job was about to end before the next geometry was known"


class EndOfJob:
    """The last moment to begin a submission (a `Limit`): the wall time ends soon, or SLURM ends it.

    Creating this value asks nobody.
    """

    def __init__(self, job: BatchContext, spare_s: float, inbox: Inbox) -> None:
        self._of_job = job, SPARE_SHARE * spare_s
        self._inbox = inbox
        self._deadline: Deadline | None = None

    def has_come(self) -> bool:
        """Whether a command that has not begun to submit has to end."""
        if self._inbox.first == signal.SIGTERM.name:
            return True
        self._deadline = self._deadline or Deadline(*self._of_job)
        return self._deadline.has_come()


def has_finished(run: RunDir, submission: Submission) -> bool:
    """Whether an earlier attempt of this job has finished the run, and its results are there.

    SLURM may start the job again while the sequel is at work. The outcome has to stay as it is:
    a path of geometries begins anew behind a run whose outcome is newer.
    """
    if submission.started_at is None or not run.can_be_begun_with:
        return False
    say("the run has finished; its worker has nothing to do here")
    return True


def run_sequel(run: RunDir, command: Sequence[str], end: Limit) -> None:
    """Run the command if the run has finished and was not cancelled.

    The output goes to the run's log. The result of the run stands, whatever becomes of the command.
    A record, which a command that succeeds removes, tells `status` of a failure or a kill.
    """
    outcome, submission = run.read_outcome(), run.read_submission()
    if not command or outcome is None or outcome.outcome is not Outcome.FINISHED:
        return
    if submission is None or submission.cancelled_at is not None:
        say("the run has been cancelled; the next run is not submitted")
        return
    with suppress(RunDirError):  # on a full disk, the command says so itself
        run.write_sequel(Sequel())
    why = TOO_LATE if end.has_come() else _why_not_done(run, command, end)
    with suppress(RunDirError):
        if not why:
            run.clear_sequel()
        elif (left := run.read_sequel()) is not None and not left.replaced_by:
            # Without a record, the command says that the path has ended.
            say(f"the next run was not submitted: {why}")
            run.write_sequel(Sequel(why=why))


def _why_not_done(run: RunDir, command: Sequence[str], end: Limit) -> str:
    """Run the command to its end; the reason why it failed, or an empty text.

    Near the end of the job, the command gets one SIGTERM. The command is deaf to SIGTERM while it
    submits, so that no call of SLURM is cut short.
    """
    begin, is_asked = size_of(run.log_path), False
    try:
        with open(run.log_path, "ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    while process.poll() is None:
        if not is_asked and end.has_come():
            process.terminate()
            is_asked = True
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
    if process.returncode == -signal.SIGTERM:
        return TOO_LATE
    code = process.returncode
    return (last_words(run.log_path, begin) or f"it ended by {how_it_ended(code)}") if code else ""
