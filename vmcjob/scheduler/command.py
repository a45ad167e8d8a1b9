"""How a backend starts `vmcjob` itself."""

import os
import sys


def python_command() -> list[str]:
    """`vmcjob` in this interpreter, finding its modules where this process found them.

    Started as a script, we do not look for modules in the current directory, and a user's
    `random.py` there must not hit the worker either.
    """
    looks_here = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *([] if looks_here else ["-P"]), "-m", "vmcjob"]
