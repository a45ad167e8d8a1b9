"""The sequel of a finished run: a command that its job runs at last, to submit the next run."""

import subprocess
from collections.abc import Sequence

from vmcjob.protocol import how_it_ended
from vmcjob.protocol.batch import say
from vmcjob.rundir import Outcome, RunDir


def run_sequel(run: RunDir, command: Sequence[str]) -> None:
    """Run the command if the run has finished; its output goes to the run's log.

    The result of the run stands, whatever becomes of the command.
    """
    outcome = run.read_outcome()
    if not command or outcome is None or outcome.outcome is not Outcome.FINISHED:
        return
    try:
        with open(run.log_path, "ab") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except OSError as error:
        say(f"the next run was not submitted: {error}")
        return
    if done.returncode:
        say(f"{' '.join(command)}: ended by {how_it_ended(done.returncode)}; see {run.log_path}")
