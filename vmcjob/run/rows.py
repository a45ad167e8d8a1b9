"""Rows with the numbers of steps, and the rows of the next commit."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import jax
import numpy as np

from vmcjob.run.blocks import Block
from vmcjob.store import Checkpoint, Commit
from vmcjob.vmc.contracts import StepInfo
from vmcjob.vmc.phases import Phase

Rows = dict[str, np.ndarray]
"""Series of equal length, by column."""

RECORDED: Final = (Phase.TRAIN, Phase.EVALUATE)
"""The phases whose every step has a row in the store."""


NO_TRAITS: Final = {"s2": np.nan, "outermost": np.nan}
"""Columns of an evaluation whose state nobody has looked at."""


class Pending:
    """Results since the last commit."""

    def __init__(self) -> None:
        self._series: dict[Phase, list[Rows]] = {phase: [] for phase in RECORDED}
        self._observed: list[Rows] = []
        self._snapshots: list[tuple[int, np.ndarray]] = []

    def add(self, phase: Phase, rows: Rows) -> None:
        """Add the rows of a block, if its phase is recorded."""
        if phase in self._series:
            self._series[phase].append(rows)

    def observe(self, block: Block, every: int) -> None:
        """Add the observations of a block."""
        self._observed += _observations(block, every)

    def keep_walkers(self, step: int, r: np.ndarray) -> None:
        """Add a snapshot of the walkers after a step of evaluation."""
        self._snapshots.append((step, r))

    def commit(self, checkpoint: Checkpoint) -> Commit:
        """The commit with all pending results and a checkpoint."""
        return Commit(
            checkpoint=checkpoint,
            train=concatenate(self._series[Phase.TRAIN]),
            evaluate=concatenate(self._series[Phase.EVALUATE]),
            observed=concatenate(self._observed),
            snapshots=self._snapshots,
        )


def rows_of(block: Block, wall_time: float) -> Rows:
    """A row for each step of a block, with the run's wall time in s at its end."""
    rows = [_row(info) for info in block.infos]
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    return columns | {"wall_time": np.full(len(rows), wall_time)}


def concatenate(parts: Sequence[Rows]) -> Rows | None:
    """Blocks of rows, concatenated."""
    if not parts:
        return None
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _row(info: StepInfo | jax.Array) -> Mapping[str, object]:
    """The numbers of one step, by column of the store."""
    if not isinstance(info, StepInfo):
        return {"acceptance": getattr(info, "acceptance", info)}
    every = "energy", "variance", "acceptance", "max_age"
    row = {name: getattr(info, name) for name in every}
    if info.update is None or info.trust is None:
        return {**row, **NO_TRAITS, **(info.traits or {})}
    more = {"width": info.width, "median": info.median, "ess": info.trust.ess}
    told = {"shortening": info.trust.part, **info.update._asdict(), **(info.told or {})}
    return row | more | told


def _observations(block: Block, every: int) -> Iterator[Rows]:
    """The observations of a block, each as one row."""
    for step, info in enumerate(block.infos, start=block.first):
        if info.observed is not None and step % every == 0:
            yield {name: np.asarray(value, float)[None] for name, value in info.observed.items()}
