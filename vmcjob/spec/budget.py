"""The budget of a spec: limits for all its runs together."""

from dataclasses import dataclass
from typing import Annotated, Final

from vmcjob.document import above, between


@dataclass(frozen=True)
class Budget:
    """Limits at which all runs of a submission stop at their next checkpoints."""

    gpu_hours: Annotated[
        float | None,
        above(0),
        "that all runs and all their attempts may use together; without GPUs, hours of nodes",
    ] = None
    max_failures: Annotated[
        int | None,
        between(1, 10_000),
        "runs that may fail or diverge before those that have not begun are left alone",
    ] = None


DEFAULT_BUDGET: Final = Budget()
