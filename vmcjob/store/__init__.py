"""One Zarr store per run: its series, walkers and checkpoints, with one writer and any readers.

`store.peek` reads what file names and JSON tell, for login nodes: nothing heavy is imported before
somebody asks for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmcjob.store.commit import Commit
    from vmcjob.store.layout import HartreeFockRecord, Layout
    from vmcjob.store.longer import extend
    from vmcjob.store.runstore import Restored, RunStore
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
_HOMES = {"Checkpoint": "slot", "Commit": "commit", "Layout": "layout", "extend": "longer"}


def __getattr__(name: str) -> object:
    """One of the above, from its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'runstore')}"), name)
