"""The sequel of a finished run: a command that its job runs at last, to submit the next run."""

import subprocess
from collections.abc import Sequence

from vmcjob.protocol import how_it_ended
from vmcjob.protocol.batch import say
from vmcjob.rundir import Outcome, RunDir, Submission


def has_finished(run: RunDir, submission: Submission) -> bool:
    """Whether an earlier attempt of this job has finished the run, and its results are there.

    SLURM may start the job again while the sequel is at work. The outcome has to stay as it is:
    a path of geometries begins anew behind a run whose outcome is newer.
    """
    if submission.started_at is None or not run.can_be_begun_with:
        return False
    say("the run has finished; its worker has nothing to do here")
    return True


def run_sequel(run: RunDir, command: Sequence[str]) -> None:
    """Run the command if the run has finished and was not cancelled.

    The output goes to the run's log. The result of the run stands, whatever becomes of the command.
    """
    outcome, submission = run.read_outcome(), run.read_submission()
    if not command or outcome is None or outcome.outcome is not Outcome.FINISHED:
        return
    if submission is None or submission.cancelled_at is not None:
        say("the run has been cancelled; the next run is not submitted")
        return
    try:
        with open(run.log_path, "ab") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except OSError as error:
        say(f"the next run was not submitted: {error}")
        return
    if done.returncode:
        say(f"{' '.join(command)}: ended by {how_it_ended(done.returncode)}; see {run.log_path}")
