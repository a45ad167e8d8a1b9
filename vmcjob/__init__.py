"""From a TOML job spec to a variational Monte Carlo energy with an honest error bar.

For notebooks: `open_run`, `open_runs` and `aggregate`. Nothing is imported before one of them is
used, so that the command starts fast.
"""

from vmcjob.version import __version__

TYPE_CHECKING = False  # as typing's, without importing it
if TYPE_CHECKING:
    from vmcjob.analysis import aggregate, open_run, open_runs

__all__ = ["__version__", "aggregate", "open_run", "open_runs"]


def __getattr__(name: str) -> object:
    """A name of `__all__`, imported on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("vmcjob.analysis"), name)


def __dir__() -> list[str]:
    """The names that a notebook completes."""
    return __all__
