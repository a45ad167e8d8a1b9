"""What a spec says about how much its runs may cost together."""

from dataclasses import dataclass
from typing import Annotated, Final

from vmcjob.document import above, between


@dataclass(frozen=True)
class Budget:
    """Where all runs of a submission stop at their next checkpoints, to be resumed with more."""

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
