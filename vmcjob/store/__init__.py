"""One Zarr store per run: its series, walkers and checkpoints, with one writer and any readers."""

from vmcjob.store.layout import Layout, snapshot_steps
from vmcjob.store.runstore import Commit, HartreeFockRecord, Restored, RunStore
from vmcjob.store.slot import Checkpoint

__all__ = [
    "Checkpoint",
    "Commit",
    "HartreeFockRecord",
    "Layout",
    "Restored",
    "RunStore",
    "snapshot_steps",
]
