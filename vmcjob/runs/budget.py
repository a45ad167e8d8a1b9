"""Budgets: whether the runs of a submission may continue, by hours used and failures."""

import time
from dataclasses import dataclass
from pathlib import Path

from vmcjob.errors import VmcJobError
from vmcjob.rundir import OLD, Group, RunDir, find_groups
from vmcjob.runs.state import State
from vmcjob.runs.status import examine
from vmcjob.runs.usage import S_PER_HOUR, format_hours, work

LOOK_S = 5.0  # seconds between two checks of a small group's use
LOOKS_PER_S = 20.0  # histories read per second for a large group
FAILURES = (State.FAILED, State.DIVERGED, State.DEAD)


def used_hours(root: Path, group: Group) -> float:
    """GPU hours of all attempts of all runs so far; node hours for runs without GPUs."""
    has_aside = (root / OLD).is_dir()
    return sum(
        group.devices[run.path.name] * _seconds(known) / S_PER_HOUR
        for run in group.runs(root)
        for known in (run, *(run.earlier if has_aside else ()))
    )


def n_failures(root: Path, group: Group) -> int:
    """Number of runs that have failed since their common submission, as far as visible here."""
    return sum(_has_failed(run, group) for run in group.runs(root))


def why_over(root: Path, group: Group) -> str | None:
    """The reason why no run of a group may continue; None if runs may continue."""
    if group.gpu_hours is None:
        return None
    used = used_hours(root, group)
    if used < group.gpu_hours:
        return None
    return (
        f"its submission has used {format_hours(used)} of {group.gpu_hours:g} GPU hours; "
        "raise budget.gpu_hours in its spec and submit the spec again"
    )


def why_not_begun(run: RunDir, group: Group) -> str | None:
    """The reason why a run of a group must not start; None if it may start."""
    root = run.path.parent
    if reason := why_over(root, group):
        return reason
    if group.max_failures is None or run.read_heartbeat() is not None:
        return None
    count = n_failures(root, group)
    if count < group.max_failures:
        return None
    runs = "1 run" if count == 1 else f"{count} runs"
    return (
        f"{runs} of its submission failed, and budget.max_failures is {group.max_failures}; "
        "correct the cause, then submit its spec again"
    )


def describe(root: Path, group: Group) -> str:
    """The use of a group's budget in one line; empty without a limit."""
    if group.gpu_hours is None:
        return ""
    count, used = len(group.devices), used_hours(root, group)
    runs = "its run" if count == 1 else f"its {count} runs"
    return f"{format_hours(used)} of {group.gpu_hours:g} GPU hours used by {runs}"


def group_of(run: RunDir) -> Group | None:
    """The group of a run if it has limits; else None."""
    group = find_groups(run.path.parent, [run.path.name]).get(run.path.name)
    return group if group is not None and group.has_limits else None


@dataclass
class BudgetWatch:
    """Checks from time to time whether the group of a run has used its budget."""

    run: RunDir
    words: str = ""
    """The reason why the run may not continue; empty as long as it may."""
    _next_look: float = float("-inf")

    def has_come(self) -> bool:
        """Whether the budget was used up at the last check; limits may change while a run works."""
        if not self.words and time.monotonic() >= self._next_look:
            group = group_of(self.run)
            n_runs = len(group.devices) if group else 0
            self._next_look = time.monotonic() + max(LOOK_S, n_runs / LOOKS_PER_S)
            self.words = (why_over(self.run.path.parent, group) or "") if group else ""
        return bool(self.words)


def _seconds(run: RunDir) -> float:
    """Working time of a run's workers, in seconds."""
    return work(run.read_attempts(), run.read_heartbeat()).seconds


def _has_failed(run: RunDir, group: Group) -> bool:
    """Whether a run has failed in its latest submission, if this belongs to the group."""
    submission = run.read_submission()
    outcome = run.read_outcome()
    if submission is None and outcome is not None:  # never started, for example on a full disk
        return State(outcome.outcome) in FAILURES and outcome.time >= group.submitted_at
    if submission is None or submission.submitted_at < group.submitted_at:
        return False
    try:
        return examine(run).state in FAILURES
    except VmcJobError:  # the run cannot be identified
        return False
