"""Agreement of ranks between two blocks: their clocks differ, and a signal may reach only one."""

from typing import NamedTuple, TypeVar

import numpy as np

from vmcjob.run.explosion import Judgement
from vmcjob.run.stop import StopRequest, describe
from vmcjob.vmc import ranks

Finding = TypeVar("Finding")


class Consensus(NamedTuple):
    """The decision for all ranks at the end of a block."""

    is_commit_due: bool
    stop_reason: str | None
    judgement: Judgement


def reach_consensus(is_commit_due: bool, stop: StopRequest, judgement: Judgement) -> Consensus:
    """The decision: rank 0's clock and judgement, and a stop if any rank was asked to stop.

    The other ranks have not seen the rows of earlier attempts.
    """
    step = judgement.explosion or 0
    own = [is_commit_due, stop.number, judgement.is_strange, step]
    said = ranks.exchange(np.array(own, np.int32))
    number = next((int(number) for number in said[:, 1] if number), 0)
    agreed = Judgement(bool(said[0, 2]), int(said[0, 3]) or None)
    return Consensus(bool(said[0, 0]), describe(number) if number else None, agreed)


def share_finding(own: Finding) -> Finding:
    """The finding of rank 0, for all ranks: only rank 0 has the rows."""
    if ranks.count() == 1:
        return own
    return ranks.from_first(own if ranks.is_first() else None)


def share_length(n_steps: int) -> int:
    """The length of the next block, from rank 0's clock."""
    return int(ranks.exchange(np.array(n_steps, np.int32))[0])
