"""Packages that a run does not need; a missing package is reported in one sentence."""

from importlib import import_module
from typing import Any

from vmcjob.errors import UsageError


def load(name: str, extra: str) -> Any:  # a module: pyright knows only installed ones
    """A module of an optional package; UsageError says how to install it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name not in (name, package):
            raise
        raise UsageError(
            f"this needs the package {package}, which is not installed: "
            f"pip install 'vmcjob[{extra}]' brings it"
        ) from None
