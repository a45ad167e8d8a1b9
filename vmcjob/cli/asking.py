"""What to ask a cluster for, from finished runs that are like a planned one."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vmcjob.cli.text import count

if TYPE_CHECKING:
    from vmcjob.runs.history import History
    from vmcjob.spec import JobSpec

MARGIN = 1.5  # of wall time and memory, above the use of the like runs
MB_PER_GB = 1024
STEPS_OF_WALL_TIME_S = (600, 3600)  # up to six hours, and above


@dataclass(frozen=True)
class Asking:
    """The advice; None for values that no like run tells."""

    rule: str
    run_ids: tuple[str, ...]
    devices: tuple[str, ...]  # that the like runs had
    wall_time_s: int | None
    memory_gb: int | None
    steps_to_target: int | None
    target: str = ""  # what like runs tell about target_error

    def facts(self) -> dict[str, str]:
        """The lines of `estimate`."""
        if self.wall_time_s is None:
            return {"to ask for": f"not known: no finished run here has {self.rule}"}
        memory = f" --mem {self.memory_gb}GB" if self.memory_gb else ""
        asked = f"--time {format_wall_time(self.wall_time_s)}{memory}"
        shown = ", ".join(self.run_ids[-2:]) + (", ..." if self.run_ids[2:] else "")
        return {
            "to ask for": f"{asked}, extrapolated: {MARGIN:g} times the use of like runs",
            "like runs": f"{count(len(self.run_ids), 'run')} with {self.rule}: {shown}",
            "ran on": "; ".join(self.devices),
            "target": self.target,
        }

    def to_json(self) -> dict[str, Any]:  # a JSON document
        """The advice as JSON."""
        time = None if self.wall_time_s is None else format_wall_time(self.wall_time_s)
        return {
            "like_runs": {"rule": self.rule, "run_ids": self.run_ids, "devices": self.devices},
            "ask_time": time,
            "ask_mem": self.memory_gb and f"{self.memory_gb}GB",
            "steps_to_target": self.steps_to_target,
        }


def ask_for(history: "History", spec: "JobSpec") -> Asking:
    """The advice for a run; a target error shortens its evaluation."""
    target, n_evaluate = spec.evaluate.target_error, spec.evaluate.steps
    to_target = None if target is None else _steps_to(history.steps_to(target), n_evaluate)
    n_steps = spec.train.steps + min(n_evaluate, to_target or n_evaluate)
    seconds, peak_mb = history.seconds_for(n_steps), history.peak_mb
    return Asking(
        history.rule,
        tuple(like.run.path.name for like in history.runs),
        tuple(dict.fromkeys(like.devices for like in history.runs)),
        None if seconds is None else _whole(MARGIN * seconds),
        None if peak_mb is None else math.ceil(MARGIN * peak_mb / MB_PER_GB),
        to_target,
        "" if to_target is None else _target_words(f"{target:g}", to_target, n_evaluate),
    )


def _steps_to(needed: int | None, ceiling: int) -> int | None:
    """The length of an evaluation that needs so many steps; may be above `ceiling`.

    The run looks rarely at its error, and ends at a second look.
    """
    from vmcjob.run.target import end_for
    from vmcjob.spec import MAX_STEPS

    if needed is None:
        return None
    return end_for(needed, ceiling) or end_for(needed, MAX_STEPS) or needed


def _target_words(target: str, n_steps: int, ceiling: int) -> str:
    """Whether and when an evaluation reaches its target error."""
    beyond = ", more than evaluate.steps" if n_steps > ceiling else ""
    return f"target_error {target} needs about {n_steps} steps{beyond}, by the error of like runs"


def format_wall_time(seconds: int) -> str:
    """A wall time as sbatch and specs read it: 02:30:00, 1-12:00:00."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def _whole(seconds: float) -> int:
    """Seconds in whole ten minutes; in whole hours, if there are more than six."""
    short, long = STEPS_OF_WALL_TIME_S
    step = short if seconds <= 6 * long else long
    return step * math.ceil(seconds / step)
