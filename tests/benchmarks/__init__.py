"""How fast, how small, how good: each a command of its own, with the threads that a worker has."""

import os

from vmcjob.run.startup import settle_libraries

INHERITED = dict(os.environ)
"""As it was before this checkout settled anything: another one settles what it knows of."""

settle_libraries()
