"""Packages that a run does not need: whoever lacks one is told so in a sentence."""

from importlib import import_module
from typing import Any

from vmcjob.errors import UsageError


def load(name: str, extra: str) -> Any:  # a module: pyright knows those that are installed
    """A module of a package that an extra of ours brings; UsageError says how to get it."""
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
