"""What ranks agree on between two blocks: their clocks differ, and a signal may reach one alone."""

from typing import NamedTuple

import numpy as np

from vmcjob.run.stop import StopRequest, describe
from vmcjob.vmc import ranks


class Edge(NamedTuple):
    """What every rank is to do at the end of a block."""

    is_commit_due: bool
    stop_reason: str | None


def agree(is_commit_due: bool, stop: StopRequest) -> Edge:
    """The first rank's clock decides; a stop that one rank was asked for is meant for all."""
    said = ranks.exchange(np.array([is_commit_due, stop.number], np.int32))
    number = next((int(number) for number in said[:, 1] if number), 0)
    return Edge(bool(said[0, 0]), describe(number) if number else None)


def agree_on_length(n_steps: int) -> int:
    """The length of the next block, as the first rank's clock has it."""
    return int(ranks.exchange(np.array(n_steps, np.int32))[0])
