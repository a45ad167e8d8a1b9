"""The state of a run's store for ranks other than 0, which alone opens and writes the store."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vmcjob.store import Commit, HartreeFockRecord, Restored, RunStore
from vmcjob.store.peek import ended_early
from vmcjob.vmc import ranks

log = logging.getLogger("vmcjob")


@dataclass
class Replica:
    """The state of a store, now and after each commit, without rows and files."""

    snapshot_steps: set[int]
    n_committed: dict[str, int]
    n_due: dict[str, int]
    rollbacks: tuple[Mapping[str, Any], ...]  # JSON
    start: HartreeFockRecord | None
    restored: Restored | None

    @classmethod
    def of(cls, store: RunStore) -> "Replica":
        """The facts about a store that other ranks need."""
        restored = store.checkpoint()  # first: a damaged one changes what counts as committed
        start = store.hartree_fock()
        lengths = store.n_committed, store.n_due
        return cls(store.snapshot_steps, *lengths, store.rollbacks, start, restored)

    def hartree_fock(self) -> HartreeFockRecord | None:
        """The Hartree–Fock start of the run; None without one."""
        return self.start

    def checkpoint(self) -> Restored | None:
        """The newest checkpoint; None if none was ever committed."""
        return self.restored

    def series(self, phase: str) -> dict[str, np.ndarray]:
        """No rows: only rank 0 needs them, for the heartbeat."""
        del phase
        columns = ("step", "energy", "variance", "median", "wall_time")
        return dict.fromkeys(columns, np.empty(0))

    def commit(self, commit: Commit) -> None:
        """Remember the commit that rank 0 writes."""
        rows = {"train": commit.train, "evaluate": commit.evaluate}
        for phase, columns in rows.items():
            if columns:
                self.n_committed[phase] += len(columns["energy"])
        self.n_committed["snapshots"] += len(commit.snapshots)
        self.restored = Restored(commit.checkpoint, None)

    def record(self, name: str, value: Any) -> None:  # JSON
        """Remember the length of a series; other facts come with the checkpoint."""
        self.n_due |= ended_early({name: value})

    def record_rollback(self, record: Mapping[str, Any]) -> None:
        """Remember a rollback, which rank 0 records."""
        self.rollbacks = (*self.rollbacks, record)


def share(own: RunStore | Replica | None) -> RunStore | Replica:
    """The store on rank 0; on other ranks, a replica of its present state.

    Other ranks do not open the store: a shared file system may show them an older state.
    """
    if not isinstance(own, RunStore):
        return ranks.from_first(None)
    if ranks.count() > 1:
        replica = Replica.of(own)
        if replica.restored and replica.restored.warning:
            log.warning("%s", replica.restored.warning)  # a store says it only once
        ranks.from_first(replica)
    return own
