"""The command with which a backend starts `vmcjob`."""

import os
import sys


def python_command() -> list[str]:
    """`vmcjob` in this interpreter, with the module path of this process.

    A script does not search the current directory for modules, so that a user's `random.py` there
    does not affect the worker either.
    """
    looks_here = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *([] if looks_here else ["-P"]), "-m", "vmcjob"]
