"""Blocks of steps of about a second; between blocks the worker checks for stops and writes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vmcjob.run.consensus import share_length
from vmcjob.run.rollback import NotFiniteError
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.loop import Step, iterate

BLOCK_SECONDS = 1.0


@dataclass(frozen=True)
class Block:
    """Consecutive completed steps of one phase."""

    last: int  # steps of the phase done so far
    state: LoopState  # after the block; the next block consumes it
    infos: Sequence[Any]  # one per step, on the host; what the phase reports
    steps_per_s: float | None  # None for the first block, which compiles


def run_blocks(step: Step, state: LoopState, first: int, edges: Sequence[int]) -> Iterator[Block]:
    """Blocks of steps from `first` to the last of the `edges`; a block ends at each edge.

    Other ends of blocks depend only on the machine's speed and change no number.
    """
    length, is_compiled = 1, False
    for edge in edges:
        while first < edge:
            last = min(first + length, edge)
            began = time.monotonic()
            pending = []
            for done in iterate(step, state, first, last):
                state = done.state
                pending.append(done.info)
            rows = devices.unreplicate(pending)
            seconds = time.monotonic() - began
            yield Block(last, state, rows, len(rows) / seconds if is_compiled else None)
            is_compiled = True
            wanted = max(1, min(2 * length, round(length * BLOCK_SECONDS / seconds)))
            length = share_length(wanted)
            first = last


def require_finite(block: Block) -> None:
    """NotFiniteError with the first step of a block whose numbers are not finite."""
    first = block.last - len(block.infos) + 1
    for step, info in enumerate(block.infos, start=first):
        if not getattr(info, "is_finite", True):
            raise NotFiniteError(step)
