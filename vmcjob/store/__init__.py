"""One Zarr store per run, with series, walkers and checkpoints; one writer, any number of readers.

`store.peek` reads file names and JSON for login nodes. Heavy packages are imported only on use.
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
    """A name of `__all__`, imported from its module on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'runstore')}"), name)
