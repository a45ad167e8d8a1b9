"""One Zarr store per run: its series, walkers and checkpoints, with one writer and any readers."""

from vmcjob.store.layout import Layout
from vmcjob.store.runstore import Commit, Restored, RunStore
from vmcjob.store.slot import Checkpoint

__all__ = ["Checkpoint", "Commit", "Layout", "Restored", "RunStore"]
