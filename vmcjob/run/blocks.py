"""Blocks of steps of about a second; between blocks the worker checks for stops and writes."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vmcjob.run.consensus import share_length
from vmcjob.run.rollback import NotFiniteError
from vmcjob.vmc import devices
from vmcjob.vmc.phases import Event, Phase, Position

BLOCK_SECONDS = 1.0


@dataclass(frozen=True)
class Block:
    """Consecutive completed steps of one phase; no steps at the first position of a phase."""

    position: Position  # after the block; the next block consumes its state
    infos: Sequence[Any]  # one per step, on the host; the reports of the phase's steps
    steps_per_s: float | None  # None for the first block, which compiles

    @property
    def first(self) -> int:
        """The number of the first step."""
        return self.position.step - len(self.infos) + 1


def in_blocks(
    course: Iterator[Position], edges_of: Callable[[Phase], Collection[int]]
) -> Iterator[Block]:
    """The course of a run in blocks.

    Args:
        course: first positions and steps of phases, as of `vmc.phases.course`.
        edges_of: the steps of a phase at which a block ends, its last step among them. Other ends
            depend only on the machine's speed and change no number.
    """
    length, end, is_compiled, edges = 1, 0, False, ()
    pending, began = [], 0.0
    for position in course:
        if not isinstance(position, Event):
            if pending:
                raise AssertionError(f"steps before {position.phase} are in no block")
            yield Block(position, (), None)
            length, end, is_compiled = 1, position.step + 1, False
            edges, pending, began = edges_of(position.phase), [], time.monotonic()
            continue
        pending.append(position.on_devices)
        if position.step < end and position.step not in edges:
            continue
        infos = devices.unreplicate(pending)
        seconds = time.monotonic() - began
        yield Block(position, infos, len(infos) / seconds if is_compiled else None)
        wanted = max(1, min(2 * length, round(length * BLOCK_SECONDS / seconds)))
        length, is_compiled = share_length(wanted), True
        end = position.step + length
        pending, began = [], time.monotonic()


def require_finite(block: Block) -> None:
    """NotFiniteError with the first step of a block whose numbers are not finite."""
    for step, info in enumerate(block.infos, start=block.first):
        if not getattr(info, "is_finite", True):
            raise NotFiniteError(step)
