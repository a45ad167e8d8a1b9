"""How fast, how small, how good: each a command of its own, with the threads that a worker has."""

import os
import sys
from pathlib import Path

from vmcjob.run.startup import settle_libraries
from vmcjob.spec import read_spec

INHERITED = dict(os.environ)
"""As it was before this checkout settled anything: another one settles what it knows of."""

_JOBS = [Path(word) for word in sys.argv if word.endswith(".toml")]  # what the command is about
settle_libraries(read_spec(_JOBS[0]).points[0].spec if _JOBS else None)
