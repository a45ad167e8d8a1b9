"""One Zarr store per run: its series, walkers and checkpoints, with one writer and any readers."""

from vmcjob.store.layout import Layout
from vmcjob.store.longer import extend
from vmcjob.store.runstore import Commit, HartreeFockRecord, Restored, RunStore
from vmcjob.store.slot import Checkpoint

__all__ = [
    "Checkpoint",
    "Commit",
    "HartreeFockRecord",
    "Layout",
    "Restored",
    "RunStore",
    "extend",
]
