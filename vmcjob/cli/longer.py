"""How finished runs go on: with steps of evaluation, to an error bar, or with training."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmcjob.errors import UsageError

if TYPE_CHECKING:
    from vmcjob.plan import Task
    from vmcjob.rundir import RunDir

MARGIN = 4
"""Times the steps that a target error should take: until it is confirmed, it may be twice as many,
and the error that they are reckoned from is an estimate too."""


@dataclass(frozen=True)
class MoreTraining:
    """Steps to train on for."""

    steps: int

    def make_longer(self, run: "RunDir", task: "Task") -> "Task":
        """The run that trains on from a finished one."""
        from vmcjob.plan import make_trained_on

        if not run.n_committed.get("train") and not run.n_committed.get("evaluate"):
            raise UsageError(f"{run.path.name}: has no parameters to train on from")
        return make_trained_on(task, self.steps)


@dataclass(frozen=True)
class Extension:
    """What was asked for; UsageError if nothing can come of it."""

    more_steps: int | None
    target_error: float | None  # hartree

    def __post_init__(self) -> None:
        error = self.target_error
        if error is not None and not 0 < error < math.inf:
            raise UsageError(f"--target-error: expected hartree, a number above 0, got {error:g}")

    def make_longer(self, run: "RunDir", task: "Task") -> "Task":
        """The run that goes on from a finished one."""
        from vmcjob.plan import make_longer

        if self.target_error is None:
            return make_longer(task, self.more_steps or 0, n_done=run.n_due)
        return make_longer(
            task,
            self._more_steps(run, self.target_error),
            n_done=run.n_due,
            target_error=self.target_error,
            is_reckoned=self.more_steps is None,
        )

    def _more_steps(self, run: "RunDir", target_error: float) -> int:
        """How many there may be: an error falls as one over the root of the steps."""
        from vmcjob.spec import MAX_STEPS

        beat, n_done = run.read_heartbeat(), run.n_due
        error = beat.error if beat and n_done else None
        if error is not None and error <= target_error:
            raise UsageError(
                f"{run.path.name}: has an error of {error:.2g} hartree; --target-error "
                f"{target_error:g} asks for no more"
            )
        if self.more_steps is not None:
            return self.more_steps
        if error is None or n_done is None:
            raise UsageError(
                f"{run.path.name}: has no error bar to reckon with; say with --more-steps how many "
                "steps --target-error may take"
            )
        needed = MARGIN * n_done * (error / target_error) ** 2
        return math.ceil(min(needed, MAX_STEPS)) - n_done
