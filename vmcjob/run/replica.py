"""A run's store as the ranks beside the first know it: the first tells, and it alone writes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vmcjob.store import Commit, HartreeFockRecord, Restored, RunStore
from vmcjob.store.peek import ended_early
from vmcjob.vmc import ranks

log = logging.getLogger("vmcjob")


@dataclass
class Replica:
    """How a store stands, and after each commit will stand, without the rows and the files."""

    snapshot_steps: set[int]
    n_committed: dict[str, int]
    n_due: dict[str, int]
    rollbacks: tuple[Mapping[str, Any], ...]  # JSON
    start: HartreeFockRecord | None
    restored: Restored | None

    @classmethod
    def of(cls, store: RunStore) -> "Replica":
        """What the other ranks have to be told of a store."""
        restored = store.checkpoint()  # first: a damaged one changes what counts as committed
        start = store.hartree_fock()
        lengths = store.n_committed, store.n_due
        return cls(store.snapshot_steps, *lengths, store.rollbacks, start, restored)

    def hartree_fock(self) -> HartreeFockRecord | None:
        """The Hartree–Fock start of the run; None where it had none."""
        return self.start

    def checkpoint(self) -> Restored | None:
        """The newest checkpoint; None where none was ever committed."""
        return self.restored

    def series(self, phase: str) -> dict[str, np.ndarray]:
        """No rows: they are for the heartbeat, which the first rank writes."""
        del phase
        columns = ("step", "energy", "variance", "median", "wall_time")
        return dict.fromkeys(columns, np.empty(0))

    def commit(self, commit: Commit) -> None:
        """Remember what the first rank writes now."""
        rows = {"train": commit.train, "evaluate": commit.evaluate}
        for phase, columns in rows.items():
            if columns:
                self.n_committed[phase] += len(columns["energy"])
        self.n_committed["snapshots"] += len(commit.snapshots)
        self.restored = Restored(commit.checkpoint, None)

    def record(self, name: str, value: Any) -> None:  # JSON
        """Remember how long a series is; all else that a worker goes by is in the checkpoint."""
        self.n_due |= ended_early({name: value})

    def record_rollback(self, record: Mapping[str, Any]) -> None:
        """Remember it: the first rank goes back too."""
        self.rollbacks = (*self.rollbacks, record)


def open_shared(open_store: Callable[[], RunStore]) -> RunStore | Replica:
    """The run's store, opened by the first rank only, and what the others are told of it.

    They do not look for themselves: a shared file system may show another host the run as it was.
    """
    return share(open_store() if ranks.is_first() else None)


def share(own: RunStore | Replica | None) -> RunStore | Replica:
    """The store that the first rank has; for the others, how it stands now."""
    if not isinstance(own, RunStore):
        return ranks.from_first(None)
    if ranks.count() > 1:
        replica = Replica.of(own)
        if replica.restored and replica.restored.warning:
            log.warning("%s", replica.restored.warning)  # a store says it only once
        ranks.from_first(replica)
    return own
